/* SPDX-License-Identifier: MIT */
/*
 * kvblk report: one HTML page with plots. report.c reads the output of iostat and replay,
 * and writes the page; report_svg.c draws.
 *
 * The rule: the page is self-contained, without script, font or network.
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
 * @y: a value for each time; NaN: no value
 */
struct chart_series {
	const char *name;
	const double *y;
};

/**
 * enum chart_unit - unit of the values
 * @CHART_MIB_S: MiB a second
 * @CHART_PERCENT: 0 to 100
 * @CHART_NS: nanoseconds, on a logarithmic scale
 */
enum chart_unit {
	CHART_MIB_S,
	CHART_PERCENT,
	CHART_NS,
};

/**
 * struct chart - a plot over time
 * @title: title above the plot
 * @unit: unit of all series
 * @nr_times: entries of @times and of each @y
 * @times: seconds since 1970, in ascending order
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
 * @name: name of the kind
 * @values: nanoseconds; 0: no value
 */
struct chart_bar {
	const char *name;
	double values[4];
};

/* Draw the plot. Without any value, write a sentence instead. */
void chart_draw(FILE *to, const struct chart *chart);
/* Draw @nr groups of bars for p50, p90, p99 and p99.9. */
void chart_draw_bars(FILE *to, const char *title, const struct chart_bar *bars, size_t nr);

/* Write @text, escaped for HTML. */
void chart_text(FILE *to, const char *text);

#endif
