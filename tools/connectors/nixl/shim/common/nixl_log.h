/* SPDX-License-Identifier: MIT */
/*
 * NIXL's log for a plugin built without NIXL's own header, which needs Abseil: lines on stderr
 * in NIXL's format, down to the level NIXL_LOG_LEVEL. A line below the level costs a comparison.
 */
#ifndef KVBLK_NIXL_LOG_H
#define KVBLK_NIXL_LOG_H

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <strings.h>

namespace kvblk_nixl {

enum class Level { Trace, Debug, Info, Warn, Error, Fatal };

inline Level log_level()
{
	static const Level level = [] {
		static const char *const names[] = { "TRACE", "DEBUG", "INFO",
						     "WARN",  "ERROR", "FATAL" };
		const char *text = std::getenv("NIXL_LOG_LEVEL");

		for (int i = 0; text && i < 6; i++) {
			if (!strcasecmp(text, names[i]))
				return static_cast<Level>(i);
		}
		return Level::Warn;
	}();

	return level;
}

/* A line, written by the destructor in a single call. */
class Line {
	std::ostringstream text_;

public:
	explicit Line(char letter)
	{
		text_ << letter << " KVBLK: ";
	}
	Line(const Line &) = delete;
	Line &operator=(const Line &) = delete;
	~Line()
	{
		text_ << '\n';
		std::cerr << text_.str() << std::flush;
	}
	std::ostream &stream()
	{
		return text_;
	}
};

struct Nothing {
	void operator&(std::ostream &) const
	{
	}
};

} // namespace kvblk_nixl

/* an expression: a single statement after an if */
#define KVBLK_NIXL_LINE(level, letter)                                      \
	::kvblk_nixl::log_level() > ::kvblk_nixl::Level::level ? (void)0 : \
		::kvblk_nixl::Nothing() & ::kvblk_nixl::Line(letter).stream()

#define NIXL_TRACE KVBLK_NIXL_LINE(Trace, 'T')
#define NIXL_DEBUG KVBLK_NIXL_LINE(Debug, 'D')
#define NIXL_INFO KVBLK_NIXL_LINE(Info, 'I')
#define NIXL_WARN KVBLK_NIXL_LINE(Warn, 'W')
#define NIXL_ERROR KVBLK_NIXL_LINE(Error, 'E')

/* used by NIXL's headers */
#define NIXL_ASSERT_ALWAYS(condition)   \
	(condition) ? (void)0 :         \
		::kvblk_nixl::Nothing() & \
		::kvblk_nixl::Line('F').stream() << #condition << ": "
#define NIXL_ASSERT(condition) NIXL_ASSERT_ALWAYS(condition)

#endif
