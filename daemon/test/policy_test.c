// SPDX-License-Identifier: MIT
/*
 * The policy over weeks of simulated telemetry. Writes follow from the setting as "kvblk replay
 * --simulate" measured them on the conversation trace at 5 % capacity
 * (Documentation/policy.rst): .649, .40, .184 and nearly 0 writes for each block requested. Days
 * are busy, nights are quiet.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/capabilities.h"
#include "kvblk_test.h"
#include "policy/policy_file.h"
#include "policy/policy_record.h"

#define GIB		(1024.0 * 1024 * 1024)
#define TIB		(1024 * GIB)
#define DAY		86400.0
#define SEGMENT		(256.0 * 1024 * 1024)

#define POOL(text) "pools = ( { name = \"kv0\"; " text " } );"

/* A pool whose puts go round the members, as in the module. */
static struct sim {
	struct config config;
	struct policy_memory memory;
	struct policy_look look;
	struct policy_verdict verdict;
	double asked;		/* bytes a second, daily mean */
	unsigned int lines;
	char last[POLICY_TEXT_LEN];
} s;

static void sim_config(const char *text)
{
	config_free(&s.config);
	assert_int_equal(config_parse(text, &s.config, stderr), 0);
	s.look.pool = &s.config.pools[0];
}

static void sim_start(const char *text, size_t members, double size)
{
	struct config config = s.config;

	config_free(&config);
	s = (struct sim){ .asked = 20.0 * 1024 * 1024, .look = {
		.now = { 700, 1000, 1000, 20, 40 }, .nr_members = members, .assembly = 1 } };
	for (size_t i = 0; i < members; i++) {
		s.look.members[i] = (struct policy_member){
			.up = true, .size = size * (double)(i + 1), .segment_size = SEGMENT,
			.nr_segments = (unsigned int)(size * (double)(i + 1) / SEGMENT),
			.free_segments = 100, .smart.asked = true,
		};
		snprintf(s.look.members[i].name, POLICY_NAME_LEN, "nvme%zun1", i);
	}
	sim_config(text);
}

static double written_each(const unsigned int *set)
{
	if (set[POLICY_SECOND] < 1000)
		return 0.01 + 0.174 * set[POLICY_SECOND] / 1000;
	if (set[POLICY_FIRST] < 1000)
		return 0.184 + 0.216 * set[POLICY_FIRST] / 1000;
	return 0.4 + 0.249 * (fmax(set[POLICY_ADMIT], 400) - 400) / 300;
}

static void sim_decide(void)
{
	policy_decide(&s.memory, &s.look, &s.verdict);
	s.lines += (unsigned int)s.verdict.nr_lines;
	if (s.verdict.nr_lines)
		snprintf(s.last, sizeof(s.last), "%s",
			 s.verdict.lines[s.verdict.nr_lines - 1].text);
	for (int i = 0; i < POLICY_LOW; i++)
		assert_true(s.verdict.to[i] <= s.memory.bound[i]);
	assert_true(s.verdict.to[POLICY_LOW] < s.verdict.to[POLICY_HIGH]);
	memcpy(s.look.now, s.verdict.to, sizeof(s.look.now));
}

/* Advance by @seconds of a day of @day seconds. */
static void sim_flow(double seconds, double day)
{
	double busy = 1 - 0.8 * cos(2 * M_PI * s.look.now_s / day);
	double bytes = s.asked * busy * seconds * written_each(s.look.now);

	s.look.now_s += seconds;
	s.look.written += bytes;
	for (size_t i = 0; i < s.look.nr_members; i++)
		s.look.members[i].written += bytes / (double)s.look.nr_members;
}

static void sim_days(double days)
{
	for (double end = s.look.now_s + days * DAY; s.look.now_s < end - 1;) {
		sim_flow(POLICY_TICK, DAY);
		sim_decide();
	}
}

/* Returns true if a line of the last decision contains @text. */
static bool said(const char *text)
{
	for (size_t i = 0; i < s.verdict.nr_lines; i++) {
		if (strstr(s.verdict.lines[i].text, text))
			return true;
	}
	return false;
}

TEST(test_week)
{
	double before;

	/* two members: 500 GiB a day allowed, 1,095 GiB offered */
	sim_start(POOL("budget: { bytes = \"250G\"; };"), 2, TIB);
	sim_decide();
	assert_true(said("budget of 500.00 GiB a day: member nvme0n1 may be written 250.00 GiB a day (bytes) and has 50 % of the writes"));
	sim_days(1);
	for (int day = 2; day <= 7; day++) {
		before = s.look.written;
		sim_days(1);
		assert_in_range((s.look.written - before) / GIB, 430, 570);
	}
	/* a line for a far move or a change of direction, not for each step */
	assert_in_range(s.lines, 10, 7 * 24);
	assert_true(s.look.now[POLICY_ADMIT] == 400 && s.look.now[POLICY_FIRST] < 1000);
}

TEST(test_enough)
{
	sim_start(POOL("budget: { drive_writes = 2.5; };"), 2, TIB);
	sim_days(2);
	assert_int_equal(s.lines, 1);
	assert_int_equal(s.look.now[POLICY_ADMIT], 700);
}

/* Members of 1 and 2 TiB get equal writes: the small one may take 0.2 TiB a day. */
TEST(test_unlike_members)
{
	double before[2];

	sim_start(POOL("budget: { drive_writes = 0.2; };"), 2, TIB);
	sim_decide();
	assert_true(said("budget of 409.60 GiB a day: member nvme0n1"));
	sim_days(2);
	for (int day = 0; day < 3; day++) {
		before[0] = s.look.members[0].written;
		before[1] = s.look.members[1].written;
		sim_days(1);
		assert_in_range((s.look.members[0].written - before[0]) / GIB, 160, 240);
		assert_true(s.look.members[1].written - before[1] < 0.4 * TIB);
	}
	/* a removed member has no share, and the other gets all writes */
	s.look.members[1].up = false;
	s.look.nr_members = 1;
	sim_days(3);
	before[0] = s.look.members[0].written;
	sim_days(1);
	assert_in_range((s.look.members[0].written - before[0]) / GIB, 160, 240);
}

/* With an interval of 1 s a day's decisions take 288 s and are the same. */
TEST(test_compressed)
{
	unsigned int want[7][POLICY_TUNABLES];

	sim_start(POOL("budget: { bytes = \"250G\"; };"), 2, TIB);
	for (int i = 0; i < 7 * 288; i++) {
		sim_flow(300, DAY);
		sim_decide();
		memcpy(want[i / 288], s.look.now, sizeof(want[0]));
	}
	sim_start(POOL("budget: { bytes = \"250G\"; interval = 1; };"), 2, TIB);
	for (int i = 0; i < 7 * 288; i++) {
		sim_flow(1, DAY / 300);
		sim_decide();
		for (int t = 0; i % 288 == 287 && t < POLICY_LOW; t++)
			assert_true(abs((int)s.look.now[t] - (int)want[i / 288][t]) <= 1);
	}
}

/* Another interval changes the governor's speed, not its state. */
TEST(test_other_interval)
{
	static const char *const other[] = {
		POOL("budget: { bytes = \"250G\"; interval = 60; };"),
		POOL("budget: { bytes = \"250G\"; interval = 900; };"),
	};
	double rate, was;

	for (int i = 0; i < 2; i++) {
		sim_start(POOL("budget: { bytes = \"250G\"; };"), 2, TIB);
		sim_days(1.5);
		was = s.memory.governor.rate * s.memory.stretch;
		sim_config(other[i]);
		policy_reread(&s.memory, s.look.pool);
		sim_decide();
		rate = s.memory.governor.rate * s.memory.stretch;
		assert_true(fabs(rate / was - 1) < 0.05);
	}
}

TEST(test_life)
{
	sim_start(POOL("budget: { life_days = 1000; };"), 2, TIB);
	s.look.members[1].smart.asked = false;
	s.look.now[POLICY_FIRST] = 500;
	sim_decide();
	assert_int_equal(s.verdict.nr_lines, 0);
	assert_int_equal(s.look.now[POLICY_FIRST], 500);
	s.look.members[1].smart.asked = true;
	sim_decide();
	assert_true(said("no member reports its wear"));
	sim_days(0.1);
	assert_int_equal(s.lines, 1);
	/* 10 % used by 100 TiB: 900 TiB in 1000 days */
	for (int i = 0; i < 2; i++)
		s.look.members[i].smart = (struct smart){ .asked = true, .valid = true, .rated = true, .used = 10, .written = 100 * TIB };
	s.look.members[1].smart.used = 20;
	sim_days(0.01);
	assert_int_equal(s.lines, 2);
	assert_non_null(strstr(s.last, "budget of 819.20 GiB a day: member nvme1n1 may be written 409.60 GiB a day (life_days)"));
	/* worn out: the least admission, and an alert */
	s.look.members[0].smart.used = 120;
	sim_days(3);
	assert_int_equal(s.look.now[POLICY_SECOND], 0);
	assert_non_null(strstr(s.last, "budget exhausted: writes "));
	assert_non_null(strstr(s.last, "raise the budget or put less; member nvme0n1 may be written 0.00 GiB"));
	s.lines = 0;
	sim_days(1);
	assert_int_equal(s.lines, 0);
}

TEST(test_bounds)
{
	sim_start(POOL("budget: { drive_writes = 100; }; tunables: { admit_permille = 500; first_permille = 300; };"), 1, TIB);
	sim_decide();
	assert_int_equal(s.look.now[POLICY_ADMIT], 500);
	assert_int_equal(s.look.now[POLICY_FIRST], 300);
	sim_days(1);
	assert_int_equal(s.look.now[POLICY_FIRST], 300);

	/* set by hand, reported once; after a reload the file's value counts */
	s.lines = 0;
	s.look.now[POLICY_FIRST] = 600;
	sim_days(1);
	assert_int_equal(s.lines, 1);
	assert_non_null(strstr(s.last, "first_permille was set to 600 by hand; this is its upper limit"));
	assert_int_equal(s.look.now[POLICY_FIRST], 600);
	policy_reread(&s.memory, s.look.pool);
	sim_days(0.01);
	assert_int_equal(s.look.now[POLICY_FIRST], 300);

	/* lowered by hand, then the budget is removed: the value stays */
	s.look.now[POLICY_ADMIT] = 450;
	sim_decide();
	sim_config(POOL(""));
	sim_decide();
	assert_true(said("budget removed"));
	assert_int_equal(s.look.now[POLICY_ADMIT], 450);
	s.look.now[POLICY_ADMIT] = 800;
	s.lines = 0;
	sim_decide();
	assert_int_equal(s.lines, 0);
	assert_int_equal(s.look.now[POLICY_ADMIT], 800);
}

TEST(test_opens_again)
{
	sim_start(POOL("budget: { bytes = \"1G\"; };"), 1, TIB);
	sim_days(1);
	assert_int_equal(s.look.now[POLICY_SECOND], 0);
	sim_config(POOL("budget: { drive_writes = 100; };"));
	policy_reread(&s.memory, s.look.pool);
	sim_decide();
	assert_true(said("budget of 102400.00 GiB a day"));
	sim_days(0.2);
	assert_int_equal(s.look.now[POLICY_ADMIT], 700);
	assert_int_equal(s.look.now[POLICY_SECOND], 1000);
	sim_config(POOL("budget: { bytes = \"1G\"; };"));
	sim_days(1);
	sim_config(POOL(""));
	sim_decide();
	assert_int_equal(s.look.now[POLICY_SECOND], 1000);
	assert_int_equal(s.look.now[POLICY_ADMIT], 700);
}

/* After assembly counters and tunables restart: the file's values count, the debt stays. */
TEST(test_assembled_anew)
{
	double saved;

	sim_start(POOL("budget: { bytes = \"50G\"; }; tunables: { admit_permille = 600; };"), 1, TIB);
	sim_days(1);
	saved = s.memory.governor.saved;
	assert_true(saved < 0 && s.look.now[POLICY_FIRST] < 1000);
	memcpy(s.look.now, (unsigned int[]){ 700, 1000, 1000, 20, 40 }, sizeof(s.look.now));
	s.look.assembly++;
	s.look.written = s.look.members[0].written = 0;
	s.look.now_s += 300;
	sim_decide();
	assert_int_equal(s.look.now[POLICY_ADMIT], 600);
	assert_true(s.memory.governor.saved == saved);
	assert_false(said("by hand"));
	/* assembled and written to more than before, without a look in between */
	memcpy(s.look.now, (unsigned int[]){ 700, 1000, 1000, 20, 40 }, sizeof(s.look.now));
	s.look.assembly++;
	s.look.written += GIB;
	sim_decide();
	assert_int_equal(s.memory.bound[POLICY_ADMIT], 600);
}

/* Advance a second at @written and @reclaimed MiB/s. */
static void flow_second(double written, double reclaimed)
{
	s.look.now_s++;
	s.look.written += written * 1024 * 1024;
	s.look.members[0].written += written * 1024 * 1024;
	s.look.members[0].reclaimed += reclaimed * 1024 * 1024;
	sim_decide();
}

TEST(test_reserve)
{
	sim_start(POOL("reserve: { seconds = 30; most_permille = 60; };"), 1, TIB);
	s.look.members[0].free_segments = 1000;
	sim_decide();
	flow_second(100, 0);
	/* 3,000 MiB are 12 of 4,096 segments: below the present reserve */
	assert_int_equal(s.look.now[POLICY_LOW], 20);
	flow_second(1200, 0);
	/* 36,000 MiB are 141 segments, 35 permille */
	assert_int_equal(s.look.now[POLICY_LOW], 35);
	assert_int_equal(s.look.now[POLICY_HIGH], 55);
	assert_true(said("reserve for 30 s: member nvme0n1 has peaks of 1200.0 MiB/s written and 0.0 MiB/s reclaimed: reclaim begins earlier"));
	/* no reserve is needed while reclaim keeps up */
	flow_second(1200, 1100);
	assert_int_equal(s.look.now[POLICY_LOW], 20);
	assert_int_equal(s.look.now[POLICY_HIGH], 40);
	flow_second(9000, 0);
	assert_int_equal(s.look.now[POLICY_LOW], 60);
	assert_true(said("needs 227 permille free for 30 s at 9000.0 MiB/s, but most_permille is 60"));
	flow_second(9000, 0);
	assert_int_equal(s.verdict.nr_lines, 0);
	/* the peak has decayed */
	s.look.now_s += 3 * 3600;
	sim_decide();
	assert_in_range(s.look.now[POLICY_LOW], 20, 25);
	/* set by hand: unchanged until a reload, then the lower bound */
	s.look.now[POLICY_LOW] = 30;
	flow_second(9000, 0);
	assert_true(said("low_permille was set to 30 by hand; kvblkd does not change it"));
	assert_int_equal(s.look.now[POLICY_LOW], 30);
	policy_reread(&s.memory, s.look.pool);
	flow_second(9000, 0);
	assert_int_equal(s.look.now[POLICY_LOW], 60);
	sim_config(POOL(""));
	flow_second(0, 0);
	assert_int_equal(s.look.now[POLICY_LOW], 30);
}

TEST(test_short_of_room)
{
	sim_start(POOL("reserve: { seconds = 1; };"), 1, TIB);
	sim_decide();
	s.look.members[0].free_segments = 60;
	flow_second(1000, 500);
	assert_int_equal(s.verdict.nr_lines, 0);
	s.look.members[0].free_segments = 30;
	flow_second(1000, 800);
	assert_true(said("member nvme0n1: no free segments in 38 s: 1000.0 MiB/s are written, reclaim frees 800.0 MiB/s"));
	assert_true(s.verdict.lines[0].warning);
	flow_second(1000, 800);
	assert_int_equal(s.verdict.nr_lines, 0);
	s.look.members[0].free_segments = 100;
	flow_second(1000, 800);
	s.look.members[0].free_segments = 30;
	flow_second(1000, 800);
	assert_int_equal(s.verdict.nr_lines, 1);
}

static char dir[] = "/tmp/policy_test.XXXXXX";

static int make_dir(void **state)
{
	return !mkdtemp(dir);
}

static int remove_dir(void **state)
{
	char command[64];

	config_free(&s.config);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static struct policy_file *open_there(void)
{
	struct policy_file *file, *other;

	assert_int_equal(policy_file_open(&file, dir, (gid_t)-1), 0);
	assert_int_equal(policy_file_open(&other, dir, (gid_t)-1), -EBUSY);
	return file;
}

/* A week with a restart in the middle of each day equals one without. */
TEST(test_restart)
{
	unsigned int want[POLICY_TUNABLES];
	struct policy_file *file;
	double written = 0;

	for (int restarts = 0; restarts < 2; restarts++) {
		sim_start(POOL("budget: { bytes = \"100G\"; }; reserve: { seconds = 600; };"), 2, TIB);
		for (int day = 0; day < 5; day++) {
			sim_days(0.5);
			file = restarts ? open_there() : NULL;
			if (file) {
				assert_int_equal(policy_file_save(file, &s.memory, 1), 0);
				memset(&s.memory, 0x55, sizeof(s.memory));
				assert_int_equal(policy_file_load(file, &s.memory, 1), 1);
			}
			policy_file_close(file);
			sim_days(0.5);
		}
		if (!restarts) {
			memcpy(want, s.look.now, sizeof(want));
			written = s.look.written;
		}
	}
	assert_memory_equal(s.look.now, want, sizeof(want));
	assert_true(fabs(s.look.written / written - 1) < 1e-9);

	/* writes while the daemon was away count */
	sim_days(0.5);
	for (int i = 0; i < 1000; i++)
		sim_flow(POLICY_TICK, DAY);
	written = s.memory.governor.last_bytes;
	sim_decide();
	assert_true(s.memory.governor.last_bytes > written + 1000 * POLICY_TICK * 1e5);
}

static void damage(const char *text, size_t len)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/" POLICY_MEMORY, dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(write(fd, text, len) == (ssize_t)len);
	close(fd);
}

TEST(test_damaged)
{
	static struct policy_memory pools[2];
	struct policy_file *file = open_there();
	char text[8192], path[64];
	ssize_t len;
	int fd;

	sim_start(POOL("budget: { bytes = \"1G\"; };"), 2, TIB);
	sim_days(1);
	assert_int_equal(policy_file_save(file, &s.memory, 1), 0);
	snprintf(path, sizeof(path), "%s/" POLICY_MEMORY, dir);
	fd = open(path, O_RDONLY);
	len = read(fd, text, sizeof(text));
	close(fd);
	assert_in_range(len, 100, sizeof(text) - 1);
	assert_int_equal(policy_file_load(file, pools, 2), 1);
	for (size_t cut = 0; cut < (size_t)len - 1; cut += 5) {
		damage(text, cut);
		assert_int_equal(policy_file_load(file, pools, 2), -EBADMSG);
	}
	/* run under sanitizers */
	srandom(1);
	for (int i = 0; i < 3000; i++) {
		size_t at = (size_t)random() % (size_t)len;
		char was = text[at];

		text[at] = (char)("{}[]\",:x019-"[random() % 12]);
		damage(text, (size_t)len);
		policy_file_load(file, pools, 2);
		text[at] = was;
	}
	unlink(path);
	assert_int_equal(policy_file_load(file, pools, 2), -ENOENT);
	policy_file_close(file);

	/* state lost: no setting counts as an operator's, so the pool must open again */
	s.memory = (struct policy_memory){ .lost = true };
	sim_config(POOL("budget: { drive_writes = 100; }; tunables: { first_permille = 800; };"));
	sim_decide();
	assert_int_equal(s.look.now[POLICY_ADMIT], 700);
	assert_int_equal(s.look.now[POLICY_FIRST], 800);
	assert_int_equal(s.look.now[POLICY_SECOND], 1000);
}

TEST(test_decisions)
{
	const unsigned int from[] = { 700, 1000, 1000, 20, 40 }, to[] = { 650, 1000, 1000, 30, 50 };
	struct policy_line line = { .kind = "budget", .measured = 2, .budget = 1, .nr_moves = 3 };
	char path[64], first[512] = "", text[512];
	struct policy_file *file;
	int nr = 0;
	FILE *in;

	snprintf(path, sizeof(path), "%s/" POLICY_DECISIONS, dir);
	in = fopen(path, "w");
	fputs("{\"time\": 1, \"pool\"\nnone\n", in);
	fclose(in);
	file = open_there();
	for (int i = 0; i < POLICY_KEPT + 10; i++) {
		snprintf(line.text, sizeof(line.text), "number %d", i);
		assert_int_equal(policy_file_tell(file, i, "kv0", &line, from, to), 0);
	}
	policy_file_close(file);
	in = fopen(path, "r");
	while (fgets(text, sizeof(text), in)) {
		if (!nr++)
			snprintf(first, sizeof(first), "%s", text);
	}
	fclose(in);
	assert_int_equal(nr, POLICY_KEPT);
	assert_non_null(strstr(first, "\"from\":{\"admit_permille\":700},\"to\":{\"admit_permille\":650},\"reason\":\"number 10\""));
}

#define MONITOR	12345

struct group *__wrap_getgrnam(const char *name);

struct group *__wrap_getgrnam(const char *name)
{
	static struct group monitor = { .gr_gid = MONITOR };

	return strcmp(name, "kvblk-monitor") ? NULL : &monitor;
}

/* Write each file of the policy, as a daemon with its reduced rights. Returns whether it worked. */
static bool write_all(const char *group)
{
	const unsigned int set[POLICY_TUNABLES] = { 0 };
	const struct policy_line line = { .kind = "budget" };
	const struct policy_memory memory = { .pool = "kv0" };
	const gid_t gid = rights_join(group);
	struct policy_file *file;
	bool done;

	if (rights_drop() || policy_file_open(&file, dir, gid))
		return false;
	done = !policy_file_save(file, &memory, 1) &&
	       !policy_file_tell(file, 0, "kv0", &line, set, set);
	policy_file_close(file);
	return done;
}

/* Files that an earlier daemon left are readable for @group alone, and so are the later ones. */
static void readers_are(const char *group, mode_t mode, gid_t gid)
{
	static const char *const names[] = { POLICY_LOCK, POLICY_MEMORY, POLICY_DECISIONS };
	char path[64];
	struct stat st;
	int status;
	pid_t pid;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		close(open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
		assert_int_equal(chmod(path, 0644), 0);
	}
	/* a process of its own, because the rights do not come back */
	pid = fork();
	if (!pid)
		_exit(!write_all(group));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 0777, mode);
		assert_int_equal(st.st_gid, gid);
	}
}

/* The files report the use of pools: to root and the group kvblk-monitor, whatever the umask. */
TEST(test_readers)
{
	readers_are("none", 0600, getegid());
	/* only root may join a group */
	if (!geteuid())
		readers_are("kvblk-monitor", 0640, MONITOR);
}

/* Restore the look and configuration of a line to s. Returns the number of files read. */
static int recorded_look(json_t *line)
{
	json_t *members, *now, *set, *value;
	json_int_t bytes, life_days, interval, seconds, most_permille, assembly;
	struct config_pool *pool;
	const char *name;
	int files;

	sim_config(POOL(""));
	pool = &s.config.pools[0];
	assert_int_equal(json_unpack(line, "{s:i, s:F, s:I, s:F, s:o, s:o, s:{s:{s:F, s:I, s:I, s:I}, s:{s:I, s:I}, s:o}}",
		"files", &files, "now_s", &s.look.now_s, "assembly", &assembly,
		"written", &s.look.written, "now", &now, "members", &members, "file",
		"budget", "drive_writes", &pool->budget.drive_writes, "bytes", &bytes,
		"life_days", &life_days, "interval", &interval,
		"reserve", "seconds", &seconds, "most_permille", &most_permille,
		"tunables", &set), 0);
	s.look.assembly = (uint64_t)assembly;
	pool->budget.bytes = bytes;
	pool->budget.life_days = life_days;
	pool->budget.interval = interval;
	pool->reserve.seconds = seconds;
	pool->reserve.most_permille = most_permille;
	json_object_foreach(set, name, value)
		pool->tunables[tunable_find(name) - tunables] = strdup(json_string_value(value));
	for (size_t i = 0; i < POLICY_TUNABLES; i++)
		s.look.now[i] = (unsigned int)json_integer_value(json_array_get(now, i));
	s.look.nr_members = json_array_size(members);
	assert_in_range(s.look.nr_members, 1, POLICY_MEMBERS);
	for (size_t i = 0; i < s.look.nr_members; i++) {
		struct policy_member *m = &s.look.members[i];
		int up, asked, valid;

		*m = (struct policy_member){ 0 };
		assert_int_equal(json_unpack(json_array_get(members, i),
			"{s:s, s:b, s:F, s:F, s:i, s:i, s:F, s:F, s:{s:b, s:b, s:i, s:i, s:i, s:i, s:F}}",
			"name", &name, "up", &up, "size", &m->size,
			"segment_size", &m->segment_size, "nr_segments", &m->nr_segments,
			"free_segments", &m->free_segments, "written", &m->written,
			"reclaimed", &m->reclaimed, "smart", "asked", &asked, "valid", &valid,
			"warning", &m->smart.warning, "used", &m->smart.used,
			"spare", &m->smart.spare, "spare_least", &m->smart.spare_least,
			"written", &m->smart.written), 0);
		snprintf(m->name, sizeof(m->name), "%s", name);
		m->up = up;
		m->smart.asked = asked;
		m->smart.valid = valid;
		m->smart.rated = valid;
	}
	return files;
}

/*
 * Decisions recorded on a real pool by 28-policy (Documentation/testing.rst): repeating them
 * gives the same decisions and the same record.
 */
TEST(test_recorded)
{
	const char *path = getenv("POLICY_RECORD");
	FILE *from = path ? fopen(path, "r") : NULL, *to;
	char *line = NULL, *again;
	int files = 0, is, nr = 0;
	size_t len = 0, size;
	json_t *json;

	assert_non_null(from);
	sim_start(POOL(""), 0, 0);
	for (; getline(&line, &len, from) > 0; nr++) {
		json = json_loads(line, 0, NULL);
		is = recorded_look(json);
		if (files && is != files)
			policy_reread(&s.memory, s.look.pool);
		files = is;
		free(s.config.pools[0].name);
		s.config.pools[0].name = strdup(json_string_value(json_object_get(json, "pool")));
		json_decref(json);
		policy_decide(&s.memory, &s.look, &s.verdict);
		to = open_memstream(&again, &size);
		assert_int_equal(policy_record(to, (unsigned int)files, &s.look, &s.verdict), 0);
		fclose(to);
		assert_string_equal(again, line);
		free(again);
		s.lines += (unsigned int)s.verdict.nr_lines;
	}
	free(line);
	fclose(from);
	assert_in_range(nr, 100, 10000);
	assert_in_range(s.lines, 5, 1000);
}

int main(void)
{
	umask(077);
	return kvblk_run_tests("policy", make_dir, remove_dir);
}
