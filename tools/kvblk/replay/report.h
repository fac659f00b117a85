/* SPDX-License-Identifier: MIT */
/*
 * kvblk report: one HTML page with plots. report.c reads what iostat and replay
 * printed, and makes the page; report_svg.c draws.
 *
 * The rule: the page needs nothing else: no script, no font, no network.
 */
#ifndef KVBLK_REPORT_H
#define KVBLK_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define CHART_SERIES_MAX	4

/**
 * struct chart_series - a line in a plot
 * @name: for the legend
 * @y: a value for each time; NaN: there is none
 */
struct chart_series {
	const char *name;
	const double *y;
};

/**
 * enum chart_unit - of the values
 * @CHART_MIB_S: MiB a second
 * @CHART_PERCENT: 0 to 100
 * @CHART_NS: nanoseconds, drawn by their logarithm
 */
enum chart_unit {
	CHART_MIB_S,
	CHART_PERCENT,
	CHART_NS,
};

/**
 * struct chart - a plot over time
 * @title: above it
 * @unit: of all series
 * @nr_times: entries of @times and of each @y
 * @times: seconds since 1970, each later than the one before
 * @series: the lines; one without a name ends them
 */
struct chart {
	const char *title;
	enum chart_unit unit;
	size_t nr_times;
	const double *times;
	struct chart_series series[CHART_SERIES_MAX + 1];
};

/**
 * struct chart_bar - latencies of one kind
 * @name: of the kind
 * @values: nanoseconds, 0: none
 */
struct chart_bar {
	const char *name;
	double values[4];
};

/* Draws it; with no value at all it says so. */
void chart_draw(FILE *to, const struct chart *chart);
/* Draws @nr of them, each with a bar for p50, p90, p99 and p99.9. */
void chart_draw_bars(FILE *to, const char *title, const struct chart_bar *bars, size_t nr);

/* Writes @text so that it is text in HTML. */
void chart_text(FILE *to, const char *text);

#endif
