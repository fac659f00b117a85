/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints. Pools are identified by name, blocks by the low half of their id. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvblk

#if !defined(_TRACE_KVBLK_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_KVBLK_H

#include <linux/ktime.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/types.h>

#include <linux/kvblk.h>

#define KVBLK_TRACE_NAME	32	/* bytes of a pool's name, NUL included */

/* Names of enum kvblk_result_flags: @F for each flag, @L for the last one. */
#define KVBLK_TRACE_RESULTS(F, L)		\
	F(KVBLK_RES_DIRECT, "direct")		\
	F(KVBLK_RES_BOUNCED, "bounced")		\
	F(KVBLK_RES_LEN_DIFFERS, "len_differs")	\
	F(KVBLK_RES_CHECKSUMS, "checksums")	\
	F(KVBLK_RES_DEVICE_READ, "device_read")	\
	F(KVBLK_RES_MEMORY, "memory")		\
	F(KVBLK_RES_UNREPORTED, "unreported")	\
	L(KVBLK_RES_FOREIGN, "foreign")
/* the format file in tracefs has values instead of names of the enum, for readers of raw events */
#define KVBLK_TRACE_VALUE(flag, name)	TRACE_DEFINE_ENUM(flag);
#define KVBLK_TRACE_NAMED(flag, name)	{ flag, name },
#define KVBLK_TRACE_NAMED_LAST(flag, name)	{ flag, name }

KVBLK_TRACE_RESULTS(KVBLK_TRACE_VALUE, KVBLK_TRACE_VALUE)

DECLARE_EVENT_CLASS(kvblk_op,
		    TP_PROTO(const char *pool, u64 id, u32 length, int res, u32 flags,
			     ktime_t start),
		    TP_ARGS(pool, id, length, res, flags, start),
		    TP_STRUCT__entry(__array(char, pool, KVBLK_TRACE_NAME)
				     __field(u64, id)
				     __field(u32, length)
				     __field(int, res)
				     __field(u32, flags)
				     __field(s64, ns)),
		    TP_fast_assign(strscpy(__entry->pool, pool, KVBLK_TRACE_NAME);
				   __entry->id = id;
				   __entry->length = length;
				   __entry->res = res;
				   __entry->flags = flags;
				   __entry->ns = ktime_to_ns(ktime_sub(ktime_get(), start));),
		    TP_printk("%s: id=%#018llx length=%u res=%d %s ns=%lld",
			      __entry->pool, __entry->id, __entry->length, __entry->res,
			      __print_flags(__entry->flags, "|",
					    KVBLK_TRACE_RESULTS(KVBLK_TRACE_NAMED,
								KVBLK_TRACE_NAMED_LAST)),
			      __entry->ns)
);

#define DEFINE_OP_EVENT(name)						\
DEFINE_EVENT(kvblk_op, name,						\
	     TP_PROTO(const char *pool, u64 id, u32 length, int res, u32 flags, \
		      ktime_t start),					\
	     TP_ARGS(pool, id, length, res, flags, start)		\
)
DEFINE_OP_EVENT(kvblk_put);
DEFINE_OP_EVENT(kvblk_get);
DEFINE_OP_EVENT(kvblk_delete);

TRACE_EVENT(kvblk_lookup,
	    TP_PROTO(const char *pool, u32 keys, u32 leading),
	    TP_ARGS(pool, keys, leading),
	    TP_STRUCT__entry(__array(char, pool, KVBLK_TRACE_NAME)
			     __field(u32, keys)
			     __field(u32, leading)),
	    TP_fast_assign(strscpy(__entry->pool, pool, KVBLK_TRACE_NAME);
			   __entry->keys = keys;
			   __entry->leading = leading;),
	    TP_printk("%s: keys=%u leading=%u", __entry->pool, __entry->keys, __entry->leading)
);

#define SEGMENT_ENTRY	__array(char, pool, KVBLK_TRACE_NAME)		\
			__field(u32, member)				\
			__field(u32, segment)				\
			__field(u64, gen)
#define SEGMENT_ASSIGN	strscpy(__entry->pool, pool, KVBLK_TRACE_NAME);	\
			__entry->member = member;			\
			__entry->segment = segment;			\
			__entry->gen = gen
#define SEGMENT_ARGS	__entry->pool, __entry->member, __entry->segment, __entry->gen

TRACE_EVENT(kvblk_segment,
	    TP_PROTO(const char *pool, u32 member, u32 segment, u64 gen, u32 state),
	    TP_ARGS(pool, member, segment, gen, state),
	    TP_STRUCT__entry(SEGMENT_ENTRY
			     __field(u32, state)),
	    TP_fast_assign(SEGMENT_ASSIGN;
			   __entry->state = state;),
	    TP_printk("%s: member=%u segment=%u gen=%llu state=%s",
		      SEGMENT_ARGS,
		      __print_symbolic(__entry->state,
				       { 0, "free" }, { 1, "open" }, { 2, "sealed" }))
);

/* A victim was reclaimed: of @live blocks, @reinserted were written again. */
TRACE_EVENT(kvblk_reclaim,
	    TP_PROTO(const char *pool, u32 member, u32 segment, u64 gen, u32 live,
		     int units, u32 reinserted, u32 dropped),
	    TP_ARGS(pool, member, segment, gen, live, units, reinserted, dropped),
	    TP_STRUCT__entry(SEGMENT_ENTRY
			     __field(u32, live)
			     __field(int, units)
			     __field(u32, reinserted)
			     __field(u32, dropped)),
	    TP_fast_assign(SEGMENT_ASSIGN;
			   __entry->live = live;
			   __entry->units = units;
			   __entry->reinserted = reinserted;
			   __entry->dropped = dropped;),
	    TP_printk("%s: member=%u segment=%u gen=%llu live=%u units=%d reinserted=%u dropped=%u",
		      SEGMENT_ARGS, __entry->live, __entry->units, __entry->reinserted,
		      __entry->dropped)
);

/* A record's header was overwritten on media. */
TRACE_EVENT(kvblk_kill,
	    TP_PROTO(const char *pool, u32 member, u32 segment, u64 gen, u32 unit),
	    TP_ARGS(pool, member, segment, gen, unit),
	    TP_STRUCT__entry(SEGMENT_ENTRY
			     __field(u32, unit)),
	    TP_fast_assign(SEGMENT_ASSIGN;
			   __entry->unit = unit;),
	    TP_printk("%s: member=%u segment=%u gen=%llu unit=%u",
		      SEGMENT_ARGS, __entry->unit)
);

#endif /* _TRACE_KVBLK_H */

/* ccflags-y in Kbuild has the path, because the module is built out of tree. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace

/* This part must be outside protection */
#include <trace/define_trace.h>
