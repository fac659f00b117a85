// SPDX-License-Identifier: MIT
/*
 * Plots as SVG, see report.h. A plot scales to the width of the page; coordinates are
 * units of the drawing.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "replay/report.h"

/* the drawing, and the area of the lines in it */
#define WIDTH		900.0
#define HEIGHT		240.0
#define LEFT		76.0
#define RIGHT		(WIDTH - 16)
#define TOP		34.0
#define BOTTOM		(HEIGHT - 28)

/* more points cannot be distinguished, so a point stands for several times */
#define POINTS_MAX	900

/* distinguishable for colour-blind readers, and in print */
static const char *const colors[CHART_SERIES_MAX] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7" };
static const char *const quantiles[] = { "p50", "p90", "p99", "p99.9" };

void chart_text(FILE *to, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '&':
			fputs("&amp;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		default:
			fputc(*text, to);
		}
	}
}

/**
 * struct axis - maps values to places
 * @log: logarithmic scale
 * @low: value at the bottom, or on the left
 * @high: value at the top, or on the right
 * @from: place of @low
 * @to: place of @high
 */
struct axis {
	bool log;
	double low;
	double high;
	double from;
	double to;
};

static double place(const struct axis *axis, double value)
{
	double share = axis->log ? log(value / axis->low) / log(axis->high / axis->low) :
				   (value - axis->low) / (axis->high - axis->low);

	return axis->from + share * (axis->to - axis->from);
}

/* Returns 1, 2 or 5 times a power of ten: at most 5 steps from 0 to @high. */
static double round_step(double high)
{
	double power = pow(10, floor(log10(high / 5)));

	if (power * 5 >= high)
		return power;
	if (power * 10 >= high)
		return power * 2;
	return power * 25 >= high ? power * 5 : power * 10;
}

static bool extremes(const struct chart *chart, double *low, double *high)
{
	bool any = false;

	for (const struct chart_series *s = chart->series; s->name; s++) {
		for (size_t i = 0; i < chart->nr_times; i++) {
			if (isnan(s->y[i]))
				continue;
			*low = any && *low <= s->y[i] ? *low : s->y[i];
			*high = any && *high >= s->y[i] ? *high : s->y[i];
			any = true;
		}
	}
	return any;
}

static void draw_grid(FILE *to, const struct axis *y, double value, const char *text)
{
	fprintf(to, "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>"
		    "<text x=\"%.0f\" y=\"%.1f\" class=\"y\">%s</text>\n",
		LEFT, RIGHT, place(y, value), place(y, value), LEFT - 6, place(y, value) + 4, text);
}

/* Write a power of ten as "10 us" to @buf. Returns @buf. */
static char *format_tick(double ns, char *buf, size_t len)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	size_t unit = 0;

	for (; ns >= 1000 && unit < ARRAY_SIZE(units) - 1; unit++)
		ns /= 1000;
	snprintf(buf, len, "%.4g %s", ns, units[unit]);
	return buf;
}

/* Compute the axis of the values, and draw the grid. Returns the axis. */
static struct axis draw_values(FILE *to, enum chart_unit unit, double low, double high)
{
	struct axis y = { .log = unit == CHART_NS, .from = BOTTOM, .to = TOP };
	char text[32];
	double step;

	if (unit == CHART_NS) {
		y.low = pow(10, floor(log10(low)));
		y.high = pow(10, ceil(log10(high)));
		if (y.high <= y.low)
			y.high = y.low * 10;
		for (int i = 0; i <= lround(log10(y.high / y.low)); i++)
			draw_grid(to, &y, y.low * pow(10, i),
				  format_tick(y.low * pow(10, i), text, sizeof(text)));
		return y;
	}
	step = unit == CHART_PERCENT ? 20 : high > 0 ? round_step(high) : 1;
	y.high = unit == CHART_PERCENT ? 100 : high > 0 ? ceil(high / step) * step : 1;
	for (int i = 0; i * step <= y.high * 1.001; i++) {
		snprintf(text, sizeof(text), unit == CHART_PERCENT ? "%g %%" : "%g", i * step);
		draw_grid(to, &y, i * step, text);
	}
	return y;
}

static struct axis draw_times(FILE *to, const struct chart *chart)
{
	static const int steps[] = {
		1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600,
		43200, 86400, 172800, 604800, 2592000,
	};
	struct axis x = { .low = chart->times[0], .high = chart->times[chart->nr_times - 1],
			  .from = LEFT, .to = RIGHT };
	double step = steps[0], t;
	char text[32];
	struct tm tm;

	if (x.high <= x.low)
		x.high = x.low + 1;
	for (size_t i = 1; (x.high - x.low) / step > 9; i++)
		step = i < ARRAY_SIZE(steps) ? steps[i] : step * 2;
	for (int i = 0; i < 10; i++) {
		time_t second;

		t = (ceil(x.low / step) + i) * step;
		second = (time_t)t;
		if (t > x.high || !localtime_r(&second, &tm))
			break;
		strftime(text, sizeof(text), step >= 86400 ? "%m-%d" : step >= 60 ? "%H:%M" : "%T",
			 &tm);
		fprintf(to, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" class=\"grid\"/>"
			    "<text x=\"%.1f\" y=\"%.0f\" class=\"x\">%s</text>\n",
			place(&x, t), place(&x, t), TOP, BOTTOM, place(&x, t), BOTTOM + 17, text);
	}
	return x;
}

/* Returns the value for times @from to @to - 1: the mean of rates, the worst latency. */
static double drawn(const struct chart *chart, const double *y, size_t from, size_t to)
{
	double sum = 0, worst = -1;
	size_t nr = 0;

	for (size_t i = from; i < to; i++) {
		if (isnan(y[i]))
			continue;
		sum += y[i];
		worst = y[i] > worst ? y[i] : worst;
		nr++;
	}
	if (!nr)
		return NAN;
	return chart->unit == CHART_NS ? worst : sum / (double)nr;
}

static void draw_series(FILE *to, const struct chart *chart, const struct axis *x,
			const struct axis *y, const double *values, const char *color)
{
	size_t each = (chart->nr_times + POINTS_MAX - 1) / POINTS_MAX;
	bool down = false;

	fprintf(to, "<path stroke=\"%s\" d=\"", color);
	for (size_t i = 0; i < chart->nr_times; i += each) {
		size_t end = i + each < chart->nr_times ? i + each : chart->nr_times;
		double value = drawn(chart, values, i, end);

		/* leave a gap without a value */
		if (!isnan(value))
			fprintf(to, "%c%.1f %.1f%s", down ? 'L' : 'M', place(x, chart->times[end - 1]),
				place(y, value), down ? "" : "h0.01");
		down = !isnan(value);
	}
	fputs("\"/>\n", to);
}

static void draw_begin(FILE *to, const char *title, double height)
{
	fprintf(to, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, height);
	chart_text(to, title);
	fprintf(to, "\">\n<text x=\"%.0f\" y=\"16\" class=\"title\">", LEFT);
	chart_text(to, title);
	fputs("</text>\n", to);
}

static void draw_legend(FILE *to, const char *const *names, size_t nr)
{
	double x = RIGHT;

	while (nr--) {
		x -= 30 + 7.0 * (double)strlen(names[nr]);
		fprintf(to, "<rect x=\"%.0f\" y=\"8\" width=\"12\" height=\"9\" fill=\"%s\"/>"
			    "<text x=\"%.0f\" y=\"16\">%s</text>\n",
			x, colors[nr], x + 17, names[nr]);
	}
}

void chart_draw(FILE *to, const struct chart *chart)
{
	const char *names[CHART_SERIES_MAX];
	double low = 0, high = 0;
	struct axis x, y;
	size_t nr = 0;

	draw_begin(to, chart->title, HEIGHT);
	if (!extremes(chart, &low, &high)) {
		fprintf(to, "<text x=\"%.0f\" y=\"%.0f\">nothing happened that this would show</text>\n</svg>\n",
			LEFT, HEIGHT / 2);
		return;
	}
	y = draw_values(to, chart->unit, low, high);
	x = draw_times(to, chart);
	for (; chart->series[nr].name; nr++) {
		draw_series(to, chart, &x, &y, chart->series[nr].y, colors[nr]);
		names[nr] = chart->series[nr].name;
	}
	draw_legend(to, names, nr);
	fputs("</svg>\n", to);
}

void chart_draw_bars(FILE *to, const char *title, const struct chart_bar *bars, size_t nr)
{
	const double row = 62, bottom = TOP + row * (double)nr, name_room = 110;
	struct axis x = { .log = true, .low = INFINITY, .from = LEFT + name_room, .to = RIGHT - 70 };
	char text[32];

	for (size_t i = 0; i < nr; i++) {
		for (size_t q = 0; q < 4; q++) {
			if (bars[i].values[q] > 0 && bars[i].values[q] < x.low)
				x.low = bars[i].values[q];
			if (bars[i].values[q] > x.high)
				x.high = bars[i].values[q];
		}
	}
	x.low = x.high > 0 ? pow(10, floor(log10(x.low / 2))) : 1;
	if (x.high <= x.low)
		x.high = x.low * 10;
	draw_begin(to, title, bottom + 8);
	for (size_t i = 0; i < nr; i++) {
		double top = TOP + row * (double)i;

		fprintf(to, "<text x=\"%.0f\" y=\"%.1f\">", LEFT, top + 30);
		chart_text(to, bars[i].name);
		fputs("</text>\n", to);
		for (size_t q = 0; q < 4; q++) {
			double value = bars[i].values[q];

			if (!(value > 0))
				continue;
			fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"11\" fill=\"%s\"/>"
				    "<text x=\"%.1f\" y=\"%.1f\" class=\"bar\">%s</text>\n",
				x.from, top + 13.0 * (double)q, place(&x, value) - x.from, colors[q],
				place(&x, value) + 5, top + 13.0 * (double)q + 10,
				cli_format_ns((uint64_t)value, text, sizeof(text)));
		}
	}
	draw_legend(to, quantiles, ARRAY_SIZE(quantiles));
	fputs("</svg>\n", to);
}
