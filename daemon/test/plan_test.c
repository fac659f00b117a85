// SPDX-License-Identifier: MIT
/* The plan: recorded states and the resulting steps, whose texts are compared word for word. */
#include "apply/plan.h"
#include "kvblk_test.h"

#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

static const char file[] =
	"modules = [ \"extra\" ];\n"
	"subsystems = ( { nqn = \"nqn.a\"; address = \"192.0.2.1\"; },\n"
	"               { nqn = \"nqn.b\"; address = \"fd00::1\"; port = 4421; } );\n"
	"pools = ( { name = \"kv0\"; degraded_after = 60;\n"
	"            tunables: { low_permille = 50; high_permille = 90; suspect_ms = 3000; }; } );\n";

/* A pool of two members, and their superblocks. */
#define POOL_UUID	{ 0x8a, 0xde, [15] = 1 }
#define MEMBER(n)	{ [0] = (n), [15] = (n) }
#define ROSTER		.epoch = 3, .nr_members = 2, .members = {			\
		{ MEMBER(1), "nvme0n1" }, { MEMBER(2), "nvme1n1" } }

static struct kvblk_found second = {
	.path = "/dev/nvme1n1", .pool = "kv0", .pool_uuid = POOL_UUID, .uuid = MEMBER(2), ROSTER,
};

static struct kvblk_found first = {
	.path = "/dev/nvme0n1", .pool = "kv0", .pool_uuid = POOL_UUID, .uuid = MEMBER(1), ROSTER,
};

static char *loaded[] = { "extra", "nvme-tcp", "kvblk" };

static struct state_controller connected[] = {
	{ "nvme0", "nqn.a", "tcp", "192.0.2.1", "4420", "", "", "8", "600", "2" },
	{ "nvme1", "nqn.b", "tcp", "fd00:0::1", "4421", "", "", "8", "600", "2" },
};

static struct kvblk_member_state up[] = {
	{ .next = &up[1], .pool = "kv0", .name = "nvme0n1", .path = "/dev/nvme0n1",
	  .uuid = MEMBER(1), .state = KVBLK_MEMBER_STATUS_UP },
	{ .pool = "kv0", .name = "nvme1n1", .path = "/dev/nvme1n1",
	  .uuid = MEMBER(2), .state = KVBLK_MEMBER_STATUS_UP },
};

static struct kvblk_pool_state kv0 = { .name = "kv0", .uuid = POOL_UUID };
static struct state_tunables tuned;

/* Returns a state that matches the file. */
static struct state whole(void)
{
	first.next = &second;
	second.next = NULL;
	up[1].state = KVBLK_MEMBER_STATUS_UP;
	kv0.next = NULL;
	strcpy(tuned.pool, "kv0");
	for (size_t i = 0; i < nr_tunables; i++)
		strcpy(tuned.value[i], "7");
	strcpy(tuned.value[tunable_find("low_permille") - tunables], "50");
	strcpy(tuned.value[tunable_find("high_permille") - tunables], "90");
	strcpy(tuned.value[tunable_find("suspect_ms") - tunables], "3000");
	return (struct state){
		.modules = { loaded, COUNT(loaded) },
		.controllers = connected, .nr_controllers = COUNT(connected),
		.pools = &kv0, .members = up, .tunables = &tuned, .nr_tunables = 1,
	};
}

/* Returns the same state before the pool is imported. */
static struct state down(void)
{
	struct state state = whole();

	state.pools = NULL;
	state.members = NULL;
	state.nr_tunables = 0;
	state.found = &first;
	return state;
}

/* Compare the texts of the plan, one per line. */
static void expect(const char *text, const struct state *state, const char *steps)
{
	struct config config;
	struct step *list;
	char *said;
	size_t len;
	FILE *to = open_memstream(&said, &len);

	assert_int_equal(config_parse(text, &config, stderr), 0);
	assert_int_equal(plan(&config, state, &list), 0);
	for (struct step *step = list; step; step = step->next)
		fprintf(to, "%s%s\n", step->kind == STEP_NOTE ? "note: " : "", step->text);
	fclose(to);
	assert_string_equal(said, steps);
	free(said);
	steps_free(list);
	config_free(&config);
}

TEST(test_nothing_to_do)
{
	struct state state = whole();
	struct config config;

	expect(file, &state, "");
	config_parse(file, &config, stderr);
	assert_false(plan_needs_scan(&config, &state));
	config_free(&config);
	expect("", &state, "");
}

TEST(test_bare_host)
{
	struct state state = { 0 };

	expect(file, &state,
	       "load module extra\n"
	       "load module nvme-tcp\n"
	       "load module kvblk\n"
	       "connect to nqn.a, tcp 192.0.2.1 port 4420\n"
	       "connect to nqn.b, tcp fd00::1 port 4421\n"
	       "note: pool kv0: waiting for its members, none found; to create a new pool, run: kvblk pool create\n");
}

TEST(test_import)
{
	struct state state = down();
	struct config config;

	expect(file, &state, "import pool kv0 from /dev/nvme0n1, /dev/nvme1n1\n");
	config_parse(file, &config, stderr);
	assert_true(plan_needs_scan(&config, &state));
	config_free(&config);
	/* members of another pool or version, and silent devices, are not used */
	second.silent = true;
	expect(file, &state, "note: pool kv0: waiting for nvme1n1; degraded import after 60 s\n");
	second.silent = false;
	second.other_version = true;
	expect(file, &state, "note: pool kv0: waiting for nvme1n1; degraded import after 60 s\n");
	second.other_version = false;
	second.former = true;
	expect(file, &state,
	       "note: pool kv0: ignoring /dev/nvme1n1, a former member that now holds other data\n"
	       "note: pool kv0: waiting for nvme1n1; degraded import after 60 s\n");
	second.former = false;
	strcpy(second.pool, "kv1");
	second.pool_uuid[0] = 9;
	expect(file, &state, "note: pool kv0: waiting for nvme1n1; degraded import after 60 s\n");
	strcpy(second.pool, "kv0");
	expect(file, &state, "note: pool kv0: two pools have this name; select one with the setting uuid\n");
	expect("pools = ( { name = \"kv0\"; uuid = \"09de0000-0000-0000-0000-000000000001\"; } );", &state,
	       "note: pool kv0: waiting for nvme0n1; to import the pool without, run: kvblk pool import kv0 --degraded\n");
	second.pool_uuid[0] = 0x8a;
	second.uuid[0] = 1;
	second.uuid[15] = 1;
	expect(file, &state, "note: pool kv0: /dev/nvme0n1 and /dev/nvme1n1 are copies of one member; disconnect one of them\n");
	second.uuid[0] = 2;
	second.uuid[15] = 2;
	expect("pools = ( { name = \"kv9\"; uuid = \"8ade0000-0000-0000-0000-000000000001\"; } );", &state,
	       "note: pool kv9: the pool with this UUID has the name kv0\n");
}

/* A pool of the pod that the file names, of another one, of none, and one that is to be made. */
TEST(test_pod)
{
	static const char begins[] = "pools = ( { name = \"kv0\"; pod: { name = \"rack7\"; }; } );";
	static const char joins[] =
		"pools = ( { name = \"kv0\"; pod: { name = \"rack7\"; seed_of = \"/dev/x\"; }; } );";
	struct state state = down();

	first.own = second.own = true;
	expect(joins, &state, "note: pool kv0: it is in no pod, but the file says pod rack7; correct the file, or create the pool anew\n");
	strcpy(first.pod, "rack8");
	strcpy(second.pod, "rack8");
	expect(joins, &state, "note: pool kv0: it is in pod rack8, but the file says pod rack7; correct the file, or create the pool anew\n");
	strcpy(first.pod, "rack7");
	strcpy(second.pod, "rack7");
	expect(joins, &state, "import pool kv0 from /dev/nvme0n1, /dev/nvme1n1\n");
	/* a file without a pod imports any */
	expect(file, &state, "import pool kv0 from /dev/nvme0n1, /dev/nvme1n1\n");
	/* pools of other nodes may have the name, and are never imported by it */
	second.pool_uuid[0] = 9;
	expect(joins, &state, "note: pool kv0: two pools have this name; select one with the setting uuid\n");
	second.own = false;
	first.nr_members = 1;
	expect(joins, &state, "import pool kv0 from /dev/nvme0n1\n");
	first.own = false;
	strcpy(first.owner, "b");
	expect(begins, &state,
	       "note: pool kv0: waiting for its members, none found; to create a new pool, run: kvblk pool create kv0 --pod rack7\n"
	       "note: pool kv0: node b has a pool of this name; if it is to be imported here, select it with the setting uuid\n");
	expect("pools = ( { name = \"kv0\"; uuid = \"8ade0000-0000-0000-0000-000000000001\"; } );", &state,
	       "import pool kv0 from /dev/nvme0n1\n");
	expect("pools = ( { name = \"kv0\"; uuid = \"8ade0000-0000-0000-0000-000000000002\"; } );", &state,
	       "note: pool kv0: waiting for its members, none found; to create a new pool, run: kvblk pool create\n");
	first.nr_members = 2;
	second.pool_uuid[0] = 0x8a;
	state.found = NULL;
	expect(begins, &state, "note: pool kv0: waiting for its members, none found; to create a new pool, run: kvblk pool create kv0 --pod rack7\n");
	expect(joins, &state, "note: pool kv0: waiting for its members, none found; to create a new pool, run: kvblk pool create kv0 --pod rack7 --seed-of /dev/x\n");
	state = whole();
	expect(joins, &state, "note: pool kv0: it is in no pod, but the file says pod rack7; correct the file, or create the pool anew\n");
	strcpy(kv0.pod, "rack7");
	expect(joins, &state, "");
	*first.pod = *second.pod = *kv0.pod = '\0';
	first.own = second.own = false;
}

/* Devices of the pod's other pools are followed while the pool is up. */
TEST(test_follow)
{
	static const char follows[] = "pools = ( { name = \"kv0\"; pod: { name = \"rack7\"; }; } );";
	static const char bare[] = "pools = ( { name = \"kv0\"; } );";
	static const char hinted[] =
		"pools = ( { name = \"kv0\"; pod: { name = \"rack7\"; }; } ); "
		"directory: { engine = \"valkey\"; servers = ( \"10.0.0.8:6379\" ); };";
	static const char alone[] =
		"pools = ( { name = \"kv0\"; pod: { name = \"rack7\"; follow = false; }; } );";
	static struct kvblk_found copy, other = {
		.path = "/dev/nvme2n1", .pool = "kv0", .pool_uuid = MEMBER(8), .uuid = MEMBER(5),
		.owner = "b", .pod = "rack7", .pod_uuid = MEMBER(7),
	};
	static struct kvblk_member_state foreign = {
		.pool = "kv0", .name = "nvme2n1", .path = "/dev/nvme2n1", .uuid = MEMBER(5),
		.owner = "b", .state = KVBLK_MEMBER_STATUS_UP,
	};
	static const char followed[] =
		"follow /dev/nvme2n1 in pool kv0: member 05000000-0000-0000-0000-000000000005 of node b\n";
	static struct kvblk_pool_state local = { .name = "kv1", .uuid = MEMBER(8) };
	char *names[] = { "foreign kv0/05000000-0000-0000-0000-000000000005" };
	struct state state = whole();
	struct config config;
	struct step *list;

	state.found = &first;
	second.next = &other;
	/* not in a pod: nothing to follow, and no scan */
	expect(bare, &state, "");
	config_parse(bare, &config, stderr);
	assert_false(plan_needs_scan(&config, &state));
	strcpy(kv0.pod, "rack7");
	memcpy(kv0.pod_uuid, other.pod_uuid, 16);
	assert_true(plan_follows(&config, &state) && plan_needs_scan(&config, &state));
	state.pools = NULL;
	assert_false(plan_follows(&config, &state));
	state.pools = &kv0;
	config_free(&config);
	config_parse(alone, &config, stderr);
	assert_false(plan_follows(&config, &state) || plan_needs_scan(&config, &state));
	config_free(&config);
	expect(follows, &state, followed);
	expect(hinted, &state, "follow /dev/nvme2n1 in pool kv0: member 05000000-0000-0000-0000-000000000005 of node b, by the directory\n");
	expect(bare, &state, followed);
	expect(alone, &state, "");
	expect("", &state, "");
	/* members of another pod, of this pool, of no pod, and devices that cannot be used */
	other.pod_uuid[0]++;
	expect(follows, &state, "");
	other.pod_uuid[0]--;
	*other.pod = '\0';
	expect(follows, &state, "");
	*other.pod = 'r';
	memcpy(other.pool_uuid, kv0.uuid, 16);
	expect(follows, &state, "");
	memcpy(other.pool_uuid, local.uuid, 16);
	for (int i = 0; i < 3; i++) {
		other.silent = i == 0;
		other.other_version = i == 1;
		other.former = i == 2;
		expect(follows, &state, "");
	}
	other.former = false;

	/* followed already, also under another path */
	state.foreign = &foreign;
	expect(follows, &state, "");
	other.path = "/dev/nvme7n1";
	expect(follows, &state, "");
	foreign.state = KVBLK_MEMBER_STATUS_RESTORING;
	expect(follows, &state, "");
	/* lost, and back elsewhere */
	foreign.state = KVBLK_MEMBER_STATUS_DEAD;
	expect(follows, &state, "follow /dev/nvme7n1 in pool kv0: member 05000000-0000-0000-0000-000000000005 of node b, which was lost\n");
	second.next = NULL;
	expect(follows, &state, "note: pool kv0: followed member nvme2n1 of node b was lost, and no device of the pod holds it now; to drop it, run: kvblk member unfollow kv0 nvme2n1\n");
	expect(alone, &state, "");
	second.next = &other;
	/* another device has the path of the lost one, which is awaited */
	other.path = "/dev/nvme2n1";
	other.uuid[0] = 6;
	expect(follows, &state,
	       "follow /dev/nvme2n1 in pool kv0: member 06000000-0000-0000-0000-000000000005 of node b\n"
	       "note: pool kv0: followed member nvme2n1 of node b was lost, and no device of the pod holds it now; to drop it, run: kvblk member unfollow kv0 nvme2n1\n");
	/* formatted anew, in the pod or not */
	foreign.state = KVBLK_MEMBER_STATUS_UNRESTORED;
	expect(follows, &state, "follow /dev/nvme2n1 in pool kv0: member 06000000-0000-0000-0000-000000000005 of node b, which was formatted anew\n");
	*other.pod = '\0';
	expect(follows, &state, "note: pool kv0: followed member nvme2n1 of node b was formatted anew, and no device of the pod holds it now; to drop it, run: kvblk member unfollow kv0 nvme2n1\n");
	*other.pod = 'r';
	other.uuid[0] = 5;
	/* a member that another pool follows does not count */
	strcpy(foreign.pool, "kv7");
	expect(follows, &state, followed);
	strcpy(foreign.pool, "kv0");
	state.foreign = NULL;

	/* unfollowed by the operator, or not yet followed since the pool came up */
	state.settled = (struct texts){ names, 1 };
	expect(follows, &state, "note: pool kv0: /dev/nvme2n1 of node b was unfollowed; to follow it again, reload kvblkd or run: kvblk apply\n");
	names[0] = "foreign kv/05000000-0000-0000-0000-000000000005";
	expect(follows, &state, followed);
	state.settled.nr = 0;

	/* a member of this host's pool, which could not be imported if it were followed */
	other.own = true;
	expect(follows, &state, "note: pool kv0: not following /dev/nvme2n1, because it is a member of pool kv0 of this node, which is not up\n");
	kv0.next = &local;
	expect("pools = ( { name = \"kv0\"; }, { name = \"kv1\"; } );", &state, followed);
	kv0.next = NULL;
	other.own = false;

	/* copies of one member */
	copy = other;
	copy.path = "/dev/nvme3n1";
	other.next = &copy;
	expect(follows, &state,
	       "note: pool kv0: not following /dev/nvme2n1, because /dev/nvme3n1 is a copy of the same member; disconnect one of them\n"
	       "note: pool kv0: not following /dev/nvme3n1, because /dev/nvme2n1 is a copy of the same member; disconnect one of them\n");
	/* names that are taken, and names that the module refuses */
	copy.uuid[0] = 6;
	other.path = "/dev/mapper/nvme1n1";
	copy.path = "/dev/mapper/+a+very+long+name+of+a+device";
	config_parse(follows, &config, stderr);
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_int_equal(list->kind, STEP_FOLLOW);
	assert_string_equal(list->pool, "kv0");
	assert_string_equal(list->paths.text[0], "/dev/mapper/nvme1n1");
	assert_string_equal(list->value, "nvme1n1-05000000");
	assert_string_equal(list->next->value, "da_very_long_name_of_a_device");
	steps_free(list);
	/* of two devices, and of a foreign member that stays */
	other.path = "/dev/1/a-name-of-26-characters-xx";
	copy.path = "/dev/2/a-name-of-26-characters-xx";
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_string_equal(list->value, "a-name-of-26-characters-xx");
	assert_string_equal(list->next->value, "a-name-of-26-character-06000000");
	steps_free(list);
	state.foreign = &foreign;
	foreign.state = KVBLK_MEMBER_STATUS_DEAD;
	copy.path = "/dev/2/nvme2n1";
	other.path = "/dev/1/nvme2n1";
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_string_equal(list->value, "nvme2n1");
	assert_string_equal(list->next->value, "nvme2n1-06000000");
	assert_null(list->replaced);
	steps_free(list);
	/* formatted anew: the name is that of the former entry, which is dropped first */
	other.next = NULL;
	foreign.state = KVBLK_MEMBER_STATUS_UNRESTORED;
	foreign.uuid[0] = 4;
	strcpy(foreign.path, "/dev/1/nvme2n1");
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_string_equal(list->value, "nvme2n1");
	assert_ptr_equal(list->replaced, foreign.uuid);
	steps_free(list);
	config_free(&config);
	*kv0.pod = '\0';
	other.next = NULL;
}

TEST(test_degraded)
{
	static const char patient[] = "pools = ( { name = \"kv0\"; } );";
	struct state state = down();
	int64_t waited = 59;

	first.next = NULL;
	state.waited = &waited;
	expect(file, &state, "note: pool kv0: waiting for nvme1n1; degraded import after 60 s\n");
	waited = 60;
	expect(file, &state, "import pool kv0 from /dev/nvme0n1, degraded: nvme1n1 missing after 60 s\n");
	expect(patient, &state, "note: pool kv0: waiting for nvme1n1; to import the pool without, run: kvblk pool import kv0 --degraded\n");
}

TEST(test_members_of_file)
{
	static const char by_path[] =
		"pools = ( { name = \"kv0\"; members = ( \"/dev/disk/by-id/a\", \"/dev/disk/by-id/b\" ); } );";
	static const char by_uuid[] =
		"pools = ( { name = \"kv0\"; members = ( \"01000000-0000-0000-0000-000000000001\",\n"
		"	\"03000000-0000-0000-0000-000000000003\" ); } );";
	struct state_link links[] = {
		{ "/dev/disk/by-id/a", "/dev/nvme0n1" }, { "/dev/disk/by-id/b", NULL },
	};
	struct state state = down();

	state.links = links;
	state.nr_links = COUNT(links);
	expect(by_path, &state, "note: pool kv0: waiting for /dev/disk/by-id/b; to import the pool without, run: kvblk pool import kv0 --degraded\n");
	links[1].device = "/dev/nvme1n1";
	expect(by_path, &state, "import pool kv0 from /dev/nvme0n1, /dev/nvme1n1\n");
	expect(by_uuid, &state,
	       "note: pool kv0: waiting for 03000000-0000-0000-0000-000000000003; to import the pool without, run: kvblk pool import kv0 --degraded\n");

	/* pool up: members that only the file has are reported, not added */
	state = whole();
	state.links = links;
	state.nr_links = COUNT(links);
	expect(by_path, &state, "");
	links[1].device = "/dev/nvme7n1";
	expect(by_path, &state, "note: pool kv0: /dev/disk/by-id/b is not a member; to add it, run: kvblk member add\n");
}

TEST(test_lost_member)
{
	struct state state = whole();

	up[1].state = KVBLK_MEMBER_STATUS_DEAD;
	expect(file, &state, "note: pool kv0: waiting for the device of member nvme1n1 (02000000-0000-0000-0000-000000000002)\n");
	state.found = &first;
	second.path = "/dev/nvme7n1";
	expect(file, &state, "add /dev/nvme7n1 to pool kv0: lost member nvme1n1 (02000000-0000-0000-0000-000000000002)\n");
	up[1].state = KVBLK_MEMBER_STATUS_MISSING;
	expect(file, &state, "add /dev/nvme7n1 to pool kv0: lost member nvme1n1 (02000000-0000-0000-0000-000000000002)\n");
	second.pool_uuid[0] = 9;
	expect(file, &state, "note: pool kv0: waiting for the device of member nvme1n1 (02000000-0000-0000-0000-000000000002)\n");
	second.pool_uuid[0] = 0x8a;
	first.uuid[0] = 2;
	first.uuid[15] = 2;
	expect(file, &state, "note: pool kv0: several devices are copies of member nvme1n1 (02000000-0000-0000-0000-000000000002); disconnect all but one\n");
	first.uuid[0] = 1;
	first.uuid[15] = 1;
	second.path = "/dev/nvme1n1";
	/* an unrestored or partly unread member is read again */
	for (int part = 0; part < 2; part++) {
		up[1].state = part ? KVBLK_MEMBER_STATUS_UP : KVBLK_MEMBER_STATUS_UNRESTORED;
		up[1].unread_segments = part;
		expect(file, &state, "add /dev/nvme1n1 to pool kv0: member nvme1n1 (02000000-0000-0000-0000-000000000002) was not restored completely\n");
	}
	up[1].unread_segments = 0;
	up[1].state = KVBLK_MEMBER_STATUS_DEAD;
	second.former = true;
	expect(file, &state, "note: pool kv0: waiting for the device of member nvme1n1 (02000000-0000-0000-0000-000000000002)\n");
	second.former = false;
	up[1].state = KVBLK_MEMBER_STATUS_RESTORING;
	expect(file, &state, "");
	/* a pool that the file does not name is not maintained */
	expect("", &state, "");
}

TEST(test_others_are_left_alone)
{
	static struct kvblk_pool_state other = { .name = "kv7" };
	struct state state = whole();

	kv0.next = &other;
	expect(file, &state, "note: pool kv7 is up but not in the file; it stays unchanged\n");
	expect("pools = ( { name = \"kv7\"; uuid = \"09de0000-0000-0000-0000-000000000001\"; } );", &state,
	       "note: pool kv7: another pool of this name is up; to take it down, run: kvblk pool destroy kv7\n"
	       "note: pool kv0 is up but not in the file; it stays unchanged\n");
}

TEST(test_tunables)
{
	struct state state = whole();
	char *names[] = { "kv0" };

	strcpy(tuned.value[tunable_find("suspect_ms") - tunables], "5000");
	strcpy(tuned.value[tunable_find("low_permille") - tunables], "20");
	expect(file, &state,
	       "set low_permille of pool kv0 from 20 to 50\n"
	       "set suspect_ms of pool kv0 from 5000 to 3000\n");
	strcpy(tuned.value[tunable_find("high_permille") - tunables], "40");
	expect(file, &state,
	       "set high_permille of pool kv0 from 40 to 90\n"
	       "set low_permille of pool kv0 from 20 to 50\n"
	       "set suspect_ms of pool kv0 from 5000 to 3000\n");
	state.settled = (struct texts){ names, 1 };
	expect(file, &state, "");
	/* with a budget the policy moves the tunable, and the file sets its limit */
	state.settled = (struct texts){ 0 };
	strcpy(tuned.value[tunable_find("admit_permille") - tunables], "450");
	expect("pools = ( { name = \"kv0\"; tunables: { admit_permille = 600; }; } );", &state,
	       "set admit_permille of pool kv0 from 450 to 600\n");
	expect("pools = ( { name = \"kv0\"; tunables: { admit_permille = 600; }; budget: { drive_writes = 1; }; } );",
	       &state, "");
}

TEST(test_tenants)
{
	static const char tenants[] =
		"pools = ( { name = \"kv0\"; tenants = ( { name = \"blue\"; mode = \"0600\"; owner = \"5\"; group = \"6\";\n"
		"  quota_bytes = \"1M\"; quota_bytes_soft = 7; quota_blocks = 0; quota_blocks_soft = 8; quota_dram = 9;\n"
		"  weight = 300; shared = \"common\"; }, { name = \"common\"; mode = \"0640\"; },\n"
		"  { name = \"default\"; weight = 50; } ); } );";
	static struct kvblk_tenant_state nvme = { .pool = "kv0", .name = "nvme-kv", .has_limits = true };
	static struct kvblk_tenant_state now[] = {
		{ .next = &now[1], .pool = "kv0", .name = "default", .has_limits = true, .weight = 100 },
		{ .next = &now[2], .pool = "kv0", .name = "other", .has_mode = true, .has_limits = true },
		{ .next = &now[3], .pool = "kv7", .name = "blue", .has_mode = true, .has_limits = true },
		{ .next = &now[4], .pool = "kv0", .name = "common", .mode = 0640, .has_limits = true,
		  .quota_bytes = 1000, .weight = 10, .shared = "other" },
		{ .pool = "kv0", .name = "blue", .mode = 0660, .uid = 1, .has_limits = true, .quota_blocks = 3,
		  .weight = 100, .shared = "" },
	};
	char *names[] = { "tenant kv0/blue", "tenant kv0/default" };
	struct state state = whole();
	struct config config;
	struct step *list;

	/* a module without tenants, or a pool of which nothing is known */
	expect(tenants, &state,
	       "create tenant blue of pool kv0\n"
	       "create tenant common of pool kv0\n"
	       "create tenant default of pool kv0\n");
	now[3].next = NULL;
	state.tenants = now;
	expect(tenants, &state,
	       "create tenant blue of pool kv0\n"
	       "set tenant default of pool kv0: weight from 100 to 50\n"
	       "note: tenant other of pool kv0 is not in the file; it stays unchanged\n");
	/* the tenant that was created */
	now[3].next = &now[4];
	now[4].next = &nvme;
	expect(tenants, &state,
	       "set tenant blue of pool kv0: mode from 0660 to 0600, owner from 1 to 5, group from 0 to 6, quota_bytes from 0 to 1048576, quota_bytes_soft from 0 to 7, quota_blocks from 3 to 0, quota_blocks_soft from 0 to 8, quota_dram from 0 to 9, weight from 100 to 300, shared from \"\" to \"common\"\n"
	       "set tenant default of pool kv0: weight from 100 to 50\n"
	       "note: tenant other of pool kv0 is not in the file; it stays unchanged\n");
	/* the operator's changes and removals stay; the other tenants are as the file says */
	state.settled = (struct texts){ names, 2 };
	now[1].next = &now[3];
	expect(tenants, &state, "note: tenant other of pool kv0 is not in the file; it stays unchanged\n");
	now[3].next = NULL;
	now[0].next = &now[3];
	expect(tenants, &state, "note: tenant blue of pool kv0 was removed; to create it again, reload kvblkd or run: kvblk apply\n");
	/* a file without tenants says nothing of them */
	state.settled = (struct texts){ 0 };
	expect("pools = ( { name = \"kv0\"; } );", &state, "");
	/* a pool that is not up has none */
	state = down();
	state.tenants = now;
	expect(tenants, &state, "import pool kv0 from /dev/nvme0n1, /dev/nvme1n1\n");

	state = whole();
	state.tenants = now;
	now[0].next = &now[4];
	assert_int_equal(config_parse(tenants, &config, stderr), 0);
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_int_equal(list->kind, STEP_TENANT);
	assert_string_equal(list->value, "common");
	assert_int_equal(list->change.mode, 0640);
	assert_int_equal(list->change.uid, 0);
	assert_int_equal(list->next->kind, STEP_TENANT_SET);
	assert_string_equal(list->next->pool, "kv0");
	assert_string_equal(list->next->value, "blue");
	assert_int_equal(list->next->change.size, sizeof(list->change));
	assert_int_equal(list->next->change.fields, 0x3ff);
	assert_int_equal(list->next->change.quota_bytes, 1 << 20);
	assert_int_equal(list->next->change.quota_blocks_soft, 8);
	assert_string_equal(list->next->change.shared, "common");
	assert_int_equal(list->next->next->change.fields, KVBLK_TENANT_WEIGHT);
	steps_free(list);
	config_free(&config);
}

TEST(test_taken_down)
{
	struct state state = down();
	char *names[] = { "kv0" };

	state.settled = (struct texts){ names, 1 };
	expect(file, &state, "note: pool kv0 was taken down; to import it again, reload kvblkd or run: kvblk apply\n");
	names[0] = "module kvblk";
	state = whole();
	state.modules.nr = 2;
	state.settled = (struct texts){ names, 1 };
	expect(file, &state, "note: module kvblk was unloaded; to load it again, run modprobe or reload kvblkd\n");
}

TEST(test_timeouts)
{
	static const char changed[] =
		"subsystems = ( { nqn = \"nqn.a\"; address = \"192.0.2.1\"; reconnect_delay = 7;\n"
		"                 fast_io_fail = -1; } );\n";
	static const char never[] =
		"subsystems = ( { nqn = \"nqn.a\"; address = \"192.0.2.1\"; ctrl_loss = -1; } );\n";
	struct state state = whole();
	char *names[] = { "nvme0" };

	expect(changed, &state,
	       "set reconnect_delay of nvme0 (nqn.a) from 2 to 7\n"
	       "set ctrl_loss of nvme0 (nqn.a) from 600 to 600\n"
	       "set fast_io_fail of nvme0 (nqn.a) from 8 to -1\n");
	expect(never, &state, "set ctrl_loss of nvme0 (nqn.a) from 600 to -1\n");
	state.settled = (struct texts){ names, 1 };
	expect(changed, &state, "");
	/* 600 s are 86 tries */
	state.settled.nr = 0;
	strcpy(connected[0].reconnect_delay, "7");
	strcpy(connected[0].ctrl_loss, "602");
	strcpy(connected[0].fast_io_fail, "off");
	expect(changed, &state, "");
	strcpy(connected[0].reconnect_delay, "2");
	strcpy(connected[0].ctrl_loss, "600");
	strcpy(connected[0].fast_io_fail, "8");
}

TEST(test_discovered)
{
	static const char discovery[] =
		"discovery = ( { address = \"192.0.2.9\"; }, { address = \"192.0.2.8\"; } );\n"
		"subsystems = ( { nqn = \"nqn.a\"; address = \"192.0.2.1\"; } );\n";
	struct config_fabric told[] = {
		{ .nqn = "nqn.a", .transport = "tcp", .address = "192.0.2.1", .port = 4420 },
		{ .nqn = "nqn.c", .transport = "tcp", .address = "192.0.2.3", .port = 4420 },
		{ .nqn = "nqn.c", .transport = "tcp", .address = "192.0.2.3", .port = 4420 },
	};
	struct state_controller here[] = {
		connected[0],
		{ "nvme5", CONFIG_DISCOVERY_NQN, "tcp", "192.0.2.9", "8009", "", "", "off", "off", "10" },
	};
	struct state state = whole();

	state.controllers = here;
	state.nr_controllers = COUNT(here);
	state.discovered = told;
	state.nr_discovered = COUNT(told);
	expect(discovery, &state,
	       "connect to nqn.2014-08.org.nvmexpress.discovery, tcp 192.0.2.8 port 8009\n"
	       "connect to nqn.c, tcp 192.0.2.3 port 4420\n");
}

/* A host name means the address resolved when connecting, before that none. */
TEST(test_names)
{
	static const char names[] =
		"subsystems = ( { nqn = \"nqn.a\"; address = \"flash0.example\"; },\n"
		"               { nqn = \"nqn.b\"; address = \"flash1\"; port = 4421; } );\n"
		"discovery = ( { address = \"192.0.2.9\"; } );\n";
	struct config_fabric told = { .nqn = "nqn.a", .transport = "tcp", .address = "192.0.2.1", .port = 4420 };
	struct state_controller here[] = {
		connected[0], connected[1],
		{ "nvme5", CONFIG_DISCOVERY_NQN, "tcp", "192.0.2.9", "8009", "", "", "off", "off", "10" },
	};
	struct state state = whole();
	struct config config;
	struct step *list;

	state.controllers = here;
	state.nr_controllers = COUNT(here);
	state.pools = NULL;
	assert_int_equal(config_parse(names, &config, stderr), 0);
	assert_true(config.subsystems[0].named && config.subsystems[1].named && !config.discovery[0].named);
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_string_equal(list->text, "connect to nqn.a, tcp flash0.example port 4420");
	assert_ptr_equal(list->fabric, &config.subsystems[0]);
	assert_string_equal(list->next->text, "connect to nqn.b, tcp flash1 port 4421");
	steps_free(list);
	strcpy(config.subsystems[0].ip, "192.0.2.1");
	strcpy(config.subsystems[1].ip, "fd00::1");
	/* a discovery controller reports the same target */
	state.discovered = &told;
	state.nr_discovered = 1;
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_null(list);
	here[0].address[0] = '\0';
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_string_equal(list->text, "connect to nqn.a, tcp flash0.example port 4420");
	assert_null(list->next);
	steps_free(list);
	config_free(&config);
}

#define KEYS		"pools = ( { name = \"kv0\"; tenants = ( { name = \"blue\"; encrypted = true; }, { name = \"red\"; } ); } );"

/* Keys are made, given and removed; a tenant that must be encrypted is left alone if it is not. */
TEST(test_tenant_keys)
{
	static struct kvblk_tenant_state now[] = {
		{ .next = &now[1], .pool = "kv0", .name = "default" },
		{ .pool = "kv0", .name = "red" },
		{ .pool = "kv0", .name = "blue", .encrypted = true },
	};
	static struct kept_key keys[] = { { POOL_UUID, "blue" }, { POOL_UUID, "gone" }, { MEMBER(1), "other" } };
	char *names[] = { "tenant kv0/blue" };
	struct state state = whole();
	struct config config;
	struct step *list;

	state.tenants = now;
	expect(KEYS, &state, "create encrypted tenant blue of pool kv0\n");
	assert_int_equal(config_parse("master_key = \"user:m\"; " KEYS, &config, stderr), 0);
	assert_int_equal(plan(&config, &state, &list), 0);
	assert_string_equal(list->master, "user:m");
	assert_memory_equal(list->pool_uuid, kv0.uuid, 16);
	steps_free(list);
	config_free(&config);
	state.keys = keys;
	state.nr_keys = COUNT(keys);
	expect(KEYS, &state,
	       "remove the kept keys of tenant blue of pool kv0\n"
	       "remove the kept keys of tenant gone of pool kv0\n"
	       "create encrypted tenant blue of pool kv0\n");
	/* unlocked, then locked after an import, also if the operator changed it before */
	now[1].next = &now[2];
	state.nr_keys = 1;
	expect(KEYS, &state, "");
	now[2].locked = true;
	state.settled = (struct texts){ names, 1 };
	expect(KEYS, &state, "give the key of tenant blue of pool kv0\n");
	/* the tenant's key may be the operator's */
	state.nr_keys = 0;
	expect(KEYS, &state, "give the key of tenant blue of pool kv0\n");
	expect("pools = ( { name = \"kv0\"; tenants = ( { name = \"blue\"; }, { name = \"red\"; } ); } );", &state, "");
	now[2] = (struct kvblk_tenant_state){ .pool = "kv0", .name = "blue", .weight = 7 };
	expect(KEYS, &state, "note: tenant blue of pool kv0: not trusted: it is not encrypted, which it must be: the superblock may have been forged; remove the tenant, or correct the file\n");
	/* nothing is known of the tenants of an older module */
	state.settled = (struct texts){ 0 };
	state.tenants = NULL;
	state.keys = keys;
	state.nr_keys = 1;
	expect(KEYS, &state, "create encrypted tenant blue of pool kv0\ncreate tenant red of pool kv0\n");
}

#define ACCEPT		"a drive or its target may have been rolled back; to accept that, remove /s/pools/8ade0000-0000-0000-0000-000000000001 and reload kvblkd\n"
#define IMPORT		"import pool kv0 from /dev/nvme0n1, /dev/nvme1n1\n"

/* A pool or member that is older than before is neither imported nor given keys. */
TEST(test_rolled_back)
{
	static struct state_newest newest = {
		.pool_uuid = POOL_UUID, .epoch = 3, .list_seq = 9, .nr_members = 2,
		.members = { { MEMBER(1), 20 }, { MEMBER(2), 30 } },
	};
	static const char degraded[] =
		"pools = ( { name = \"kv0\"; degraded_after = 0; tenants = ( { name = \"blue\"; encrypted = true; } ); } );";
	static struct kvblk_tenant_state now[] = {
		{ .next = &now[1], .pool = "kv0", .name = "default" },
		{ .pool = "kv0", .name = "blue", .encrypted = true, .locked = true },
	};
	static struct kept_key key = { POOL_UUID, "gone" };
	int64_t waited[] = { 0 };
	struct state state = down();

	setenv("STATE_DIRECTORY", "/s", 1);
	first.roster_seq = second.roster_seq = 9;
	first.seq = 20;
	second.seq = 30;
	expect(KEYS, &state, IMPORT);
	state.newest = &newest;
	state.nr_newest = 1;
	expect(KEYS, &state, IMPORT);
	/* one copy of a superblock cannot be read */
	second.seq = 29;
	expect(KEYS, &state, IMPORT);
	second.seq = 28;
	expect(KEYS, &state, "note: pool kv0: not trusted: /dev/nvme1n1 is at superblock 28, but was at 30 before: " ACCEPT);
	/* no encrypted tenants */
	expect("pools = ( { name = \"kv0\"; } );", &state, IMPORT);
	second.seq = 30;
	first.roster_seq = second.roster_seq = 8;
	expect(KEYS, &state, "note: pool kv0: not trusted: it is at epoch 3, but was at 3 before, or its members and tenants have changed since: its newest members are missing, or " ACCEPT);
	/* a member that was away is older than the pool, but as it was; without the other one it is too old */
	second.epoch = 2;
	first.roster_seq = 9;
	expect(KEYS, &state, IMPORT);
	state.found = &second;
	state.waited = waited;
	expect(degraded, &state, "note: pool kv0: not trusted: it is at epoch 2, but was at 3 before, or its members and tenants have changed since: its newest members are missing, or " ACCEPT);
	expect(KEYS, &state, "note: pool kv0: waiting for nvme0n1; to import the pool without, run: kvblk pool import kv0 --degraded\n");
	second.epoch = 3;
	/* up: no keys are given, and none removed */
	state = whole();
	state.newest = &newest;
	state.nr_newest = 1;
	state.tenants = now;
	state.keys = &key;
	state.nr_keys = 1;
	kv0.epoch = 4;
	expect(degraded, &state, "remove the kept keys of tenant gone of pool kv0\ngive the key of tenant blue of pool kv0\n");
	kv0.epoch = 2;
	expect(degraded, &state, "note: pool kv0: not trusted: it is at epoch 2, but was at 3 before, or its members and tenants have changed since: its newest members are missing, or " ACCEPT);
	kv0.epoch = 4;
	state.found = &first;
	first.seq = 10;
	expect(degraded, &state, "note: pool kv0: not trusted: /dev/nvme0n1 is at superblock 10, but was at 20 before: " ACCEPT);
	kv0.epoch = first.seq = second.seq = first.roster_seq = second.roster_seq = 0;
	unsetenv("STATE_DIRECTORY");
}

/* A superblock in which a tenant is plain that must be encrypted. */
TEST(test_forged)
{
	static const char plain[] = "pools = ( { name = \"kv0\"; } );";
	static struct kept_key key = { POOL_UUID, "red" };
	struct state state = down();

	second.nr_tenants = 2;
	strcpy(second.tenants[1].name, "blue");
	expect(KEYS, &state, IMPORT);
	first.nr_tenants = 3;
	strcpy(first.tenants[0].name, "default");
	strcpy(first.tenants[1].name, "red");
	strcpy(first.tenants[2].name, "blue");
	first.tenants[2].encrypted = true;
	expect(KEYS, &state, IMPORT);
	first.tenants[2].encrypted = false;
	expect(KEYS, &state, "note: pool kv0: not trusted: by /dev/nvme0n1 the tenant blue is not encrypted, which it must be: the superblock may have been forged; if the tenant is to be plain, correct the file\n");
	/* the file does not say so, but there is a key */
	expect(plain, &state, IMPORT);
	state.keys = &key;
	state.nr_keys = 1;
	expect(plain, &state, "note: pool kv0: not trusted: by /dev/nvme0n1 the tenant red is not encrypted, which it must be: the superblock may have been forged; if the tenant is to be plain, correct the file\n");
	first.nr_tenants = second.nr_tenants = 0;
}

TEST_MAIN("plan")
