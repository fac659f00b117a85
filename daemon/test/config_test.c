// SPDX-License-Identifier: MIT
/*
 * The configuration file: valid values reach the struct, each kind of error names line, setting
 * and allowed values, and mutated files cause errors only. A case is a row.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "kvblk_test.h"

static const char whole[] =
	"modules = [ \"nvme-rdma\" ];\n"
	"host_nqn = \"nqn.2026-11.org.example:host\"; salt = \"/run/salt\";\n"
	"subsystems = (\n"
	"  { nqn = \"nqn.2026-11.org.example:a\"; address = \"192.0.2.7\"; },\n"
	"  { nqn = \"nqn.2026-11.org.example:a\"; address = \"192.0.2.8\"; port = 4421;\n"
	"    transport = \"tcp\"; host_id = \"677c416a-0d94-4638-a2f9-3ae4b6e26d7d\";\n"
	"    host_nqn = \"nqn.2026-11.org.example:other\"; host_address = \"192.0.2.1\";\n"
	"    host_interface = \"eth0\"; dhchap_secret_file = \"/etc/kvblk/a\";\n"
	"    dhchap_ctrl_secret_file = \"/etc/kvblk/b\"; tls = true;\n"
	"    tls_key_file = \"/etc/kvblk/c\"; io_queues = 8; write_queues = 2;\n"
	"    poll_queues = 1; queue_size = 64; fast_io_fail = -1; ctrl_loss = -1;\n"
	"    reconnect_delay = 1; keep_alive = 9; header_digest = true;\n"
	"    data_digest = true; },\n"
	"  { nqn = \"nqn.2026-11.org.example:b\"; transport = \"loop\"; }\n"
	");\n"
	"discovery = ( { address = \"192.0.2.9\"; } );\n"
	"pools = (\n"
	"  { name = \"kv0\"; uuid = \"8ade7992-b201-49f6-9e07-387c3d214fe4\";\n"
	"    members = ( \"8ade7992-b201-49f6-9e07-387c3d214fe5\", \"/dev/disk/by-id/x\" );\n"
	"    pod: { name = \"rack7\"; seed_of = \"/dev/disk/by-id/x\"; follow = false; };\n"
	"    degraded_after = 60; block_size = \"2M\"; model = \"any 70B\";\n"
	"    tunables: { suspect_ms = 3000; integrity = \"producer\"; queue_bytes = \"64M\"; };\n"
	"    budget: { drive_writes = 0.5; bytes = \"2T\"; life_days = 1800; interval = 60; };\n"
	"    reserve: { seconds = 5; most_permille = 50; }; ready_below = 60; ready = \"75%\";\n"
	"    tenants = ( { name = \"blue\"; owner = \"root\"; mode = \"0600\"; quota_bytes = \"1T\"; shared = \"default\"; },\n"
	"      { name = \"default\"; weight = 7; },\n"
	"      { name = \"red\"; encrypted = true; } ); }\n"
	");\n"
	"master_key = \"trusted:m\";\n"
	"exporters: { metrics: { address = \"::1\"; port = 9000; };\n"
	"  kv_events: { endpoint = \"tcp://[::1]:6000\"; replay = \"tcp://[::1]:6001\"; topic = \"kv\";\n"
	"    medium = \"DISK\"; pools = ( \"kv0\", \"kv1\" ); sources = ( \"tcp://a.example:5557\", \"ipc:///x\" );\n"
	"    hash_only = true; parts = 8; buffer_bytes = 65536; token_bytes = \"2M\"; changes = 1024; repeat = 0; }; };\n"
	"prestage: { socket = \"/run/s\"; group = \"kvblk\"; mode = \"600\"; pools = ( \"kv0\", \"kv1\" );\n"
	"  parallel = 3; waiting = 9; bandwidth = \"1G\"; request_bytes = \"2G\"; body = \"1M\"; sessions = 5;\n"
	"  session_bytes = 4096; lease = 7; };\n"
	"pod: { listen = \"tcp://192.0.2.1:5570\"; peers = ( \"tcp://b.example:5570\", \"tcp://[::2]:5570\" ); };\n"
	"directory: { engine = \"valkey\"; servers = ( \"192.0.2.3:6379\", \"[::3]:6380\" ); password_file = \"/etc/p\";\n"
	"  span = 32; ask_ms = 10; ttl_s = 3600; };\n";

TEST(test_whole)
{
	struct config config;
	struct config_fabric *second;
	struct config_pool *pool;

	assert_int_equal(config_parse(whole, &config, stderr), 0);
	assert_int_equal(config.modules.nr, 1);
	assert_string_equal(config.modules.text[0], "nvme-rdma");
	assert_string_equal(config.salt, "/run/salt");
	assert_int_equal(config.nr_subsystems, 3);
	assert_string_equal(config.subsystems[0].transport, "tcp");
	assert_int_equal(config.subsystems[0].port, 4420);
	assert_int_equal(config.subsystems[0].fast_io_fail, 8);
	assert_int_equal(config.subsystems[0].ctrl_loss, 600);
	assert_string_equal(config.subsystems[0].host_nqn, "nqn.2026-11.org.example:host");
	assert_null(config.subsystems[0].host_id);
	second = &config.subsystems[1];
	assert_int_equal(second->port, 4421);
	assert_string_equal(second->host_nqn, "nqn.2026-11.org.example:other");
	assert_string_equal(second->ctrl_secret_file, "/etc/kvblk/b");
	assert_true(second->tls && second->header_digest && second->data_digest);
	assert_int_equal(second->write_queues, 2);
	assert_int_equal(second->fast_io_fail, -1);
	assert_int_equal(config.nr_discovery, 1);
	assert_int_equal(config.discovery[0].port, 8009);
	assert_string_equal(config.discovery[0].nqn, CONFIG_DISCOVERY_NQN);
	assert_int_equal(config.nr_pools, 1);
	pool = &config.pools[0];
	assert_int_equal(pool->members.nr, 2);
	assert_string_equal(pool->pod.name, "rack7");
	assert_string_equal(pool->pod.seed_of, "/dev/disk/by-id/x");
	assert_false(pool->pod.follow);
	assert_int_equal(pool->degraded_after, 60);
	assert_int_equal(pool->block_size, 2 << 20);
	assert_string_equal(pool->tunables[tunable_find("suspect_ms") - tunables], "3000");
	assert_string_equal(pool->tunables[tunable_find("integrity") - tunables], "producer");
	assert_string_equal(pool->tunables[tunable_find("queue_bytes") - tunables], "67108864");
	assert_null(pool->tunables[tunable_find("discard") - tunables]);
	assert_int_equal(pool->ready_below, 60);
	assert_string_equal(config.metrics.address, "::1");
	assert_int_equal(config.metrics.port, 9000);
	assert_string_equal(config.kv_events.endpoint, "tcp://[::1]:6000");
	assert_string_equal(config.kv_events.replay, "tcp://[::1]:6001");
	assert_string_equal(config.kv_events.topic, "kv");
	assert_string_equal(config.kv_events.medium, "DISK");
	assert_int_equal(config.kv_events.pools.nr, 2);
	assert_string_equal(config.kv_events.sources.text[0], "tcp://a.example:5557");
	assert_true(config.kv_events.hash_only);
	assert_int_equal(config.kv_events.parts, 8);
	assert_int_equal(config.kv_events.buffer_bytes, 65536);
	assert_int_equal(config.kv_events.token_bytes, 2 << 20);
	assert_int_equal(config.kv_events.repeat, 0);
	assert_int_equal(config.kv_events.changes, 1024);
	assert_string_equal(config.prestage.socket, "/run/s");
	assert_string_equal(config.prestage.group, "kvblk");
	assert_string_equal(config.prestage.mode, "600");
	assert_int_equal(config.prestage.pools.nr, 2);
	assert_int_equal(config.prestage.parallel * config.prestage.waiting, 27);
	assert_int_equal(config.prestage.bandwidth, 1 << 30);
	assert_int_equal(config.prestage.request_bytes, 2ll << 30);
	assert_int_equal(config.prestage.body, 1 << 20);
	assert_int_equal(config.prestage.sessions, 5);
	assert_int_equal(config.prestage.session_bytes, 4096);
	assert_int_equal(config.prestage.lease, 7);
	assert_string_equal(config.pod.listen, "tcp://192.0.2.1:5570");
	assert_int_equal(config.pod.peers.nr, 2);
	assert_string_equal(config.pod.peers.text[1], "tcp://[::2]:5570");
	assert_string_equal(config.directory.engine, "valkey");
	assert_int_equal(config.directory.servers.nr, 2);
	assert_string_equal(config.directory.servers.text[1], "[::3]:6380");
	assert_string_equal(config.directory.password_file, "/etc/p");
	assert_int_equal(config.directory.span, 32);
	assert_int_equal(config.directory.ask_ms, 10);
	assert_int_equal(config.directory.ttl_s, 3600);
	assert_true(pool->budget.drive_writes == 0.5 && config_has_budget(pool));
	assert_int_equal(pool->budget.bytes, 2ll << 40);
	assert_int_equal(pool->budget.life_days, 1800);
	assert_int_equal(pool->budget.interval, 60);
	assert_int_equal(pool->reserve.seconds, 5);
	assert_int_equal(pool->tenants.nr, 3);
	assert_false(((struct config_tenant *)pool->tenants.item)[0].encrypted);
	assert_true(((struct config_tenant *)pool->tenants.item)[2].encrypted);
	assert_string_equal(config.master_key, "trusted:m");
	assert_int_equal(pool->reserve.most_permille, 50);
	config_free(&config);
}

#define X10	"xxxxxxxxxx"
#define X100	X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
#define SUBSYSTEM(text) "subsystems = ( { nqn = \"nqn.x\"; address = \"192.0.2.7\"; " text " } );"
#define KV_EVENTS(text) "exporters: { kv_events: { " text " }; };"
#define PRESTAGE(text)	"prestage: { pools = ( \"kv0\" ); " text " };"
#define POD(text)	"pod: { listen = \"tcp://*:5570\"; " text " };"
#define DIRECTORY(text)	"directory: { engine = \"valkey\"; servers = ( \"192.0.2.3:6379\" ); " text " };"
#define SERVERS(text)	"directory: { engine = \"valkey\"; servers = ( " text " ); };"
#define THE_POOL(text) "pools = ( { name = \"kv0\"; " text " } );"
#define TENANT(text)	THE_POOL("tenants = ( { name = \"a\"; " text " } );")

/* Without a section nothing listens; an empty section has defaults. */
TEST(test_exporters)
{
	struct config config;

	assert_int_equal(config_parse("exporters: { };", &config, stderr), 0);
	assert_null(config.metrics.address);
	config_free(&config);
	assert_int_equal(config_parse("exporters: { metrics: { }; };", &config, stderr), 0);
	assert_string_equal(config.metrics.address, "127.0.0.1");
	assert_int_equal(config.metrics.port, 9733);
	assert_null(config.kv_events.endpoint);
	config_free(&config);
	assert_int_equal(config_parse("exporters: { kv_events: { }; };", &config, stderr), 0);
	assert_null(config.metrics.address);
	assert_string_equal(config.kv_events.endpoint, "tcp://127.0.0.1:5557");
	assert_string_equal(config.kv_events.replay, "tcp://127.0.0.1:5558");
	assert_string_equal(config.kv_events.topic, "");
	assert_string_equal(config.kv_events.medium, "STORAGE");
	assert_false(config.kv_events.hash_only);
	assert_int_equal(config.kv_events.parts, 1);
	assert_int_equal(config.kv_events.buffer_bytes, 64 << 20);
	assert_int_equal(config.kv_events.token_bytes, 1 << 30);
	assert_int_equal(config.kv_events.changes, 65536);
	assert_int_equal(config.kv_events.repeat, 5);
	assert_null(config.prestage.socket);
	config_free(&config);
	assert_int_equal(config_parse(PRESTAGE(""), &config, stderr), 0);
	assert_string_equal(config.prestage.socket, "/run/kvblkd/prestage.sock");
	assert_string_equal(config.prestage.mode, "0660");
	assert_null(config.prestage.group);
	assert_int_equal(config.prestage.parallel, 2);
	assert_int_equal(config.prestage.body, 8 << 20);
	assert_null(config.pod.listen);
	config_free(&config);
	assert_int_equal(config_parse(POD(""), &config, stderr), 0);
	assert_string_equal(config.pod.listen, "tcp://*:5570");
	assert_int_equal(config.pod.peers.nr, 0);
	assert_null(config.directory.engine);
	config_free(&config);
	assert_int_equal(config_parse(DIRECTORY(""), &config, stderr), 0);
	assert_string_equal(config.directory.engine, "valkey");
	assert_string_equal(config.directory.servers.text[0], "192.0.2.3:6379");
	assert_null(config.directory.password_file);
	assert_int_equal(config.directory.span, 16);
	assert_int_equal(config.directory.ask_ms, 5);
	assert_int_equal(config.directory.ttl_s, 86400);
	config_free(&config);
}

static const struct {
	const char *text;
	const char *says;
} wrong[] = {
	{ "modules = [ \"a\" ", "text:1: syntax error" },
	{ "modules = 7;", ":1: modules: must be a list of at most 64 strings, each the name of a kernel module" },
	{ "modules = [ 1, 2 ];", "modules[0]: must be a list" },
	{ "modules = [ \"a b\" ];", "modules[0]: a b is not allowed" },
	{ "modules = [ \"../a\" ];", "modules[0]: ../a is not allowed" },
	{ "frob = 1;", ":1: frob: unknown setting; known settings:" },
	{ "frob = 1;", "\n\tsubsystems\n" },
	{ "host_nqn = \"x\";", "host_nqn: x is not allowed, it must be a string: an NQN" },
	{ "salt = \"etc/salt\";", "salt: etc/salt is not allowed, it must be a string: a path" },
	{ "salt = true;", "salt: must be a string" },
	{ "host_nqn = \"nqn.a,tls\";", "host_nqn: nqn.a,tls is not allowed" },
	{ "host_id = \"8ade7992\";", "host_id: 8ade7992 is not allowed, it must be a string: a UUID" },
	{ "subsystems = { };", "subsystems: must be a list of groups" },
	{ "subsystems = ( 1 );", "subsystems[0]: must be a group" },
	{ "subsystems = (\n\n { address = \"192.0.2.7\"; } );", ":3: subsystems[0]: nqn is missing" },
	{ "subsystems = ( { nqn = \"nqn.x\"; } );", "subsystems[0]: address is missing" },
	{ SUBSYSTEM("") SUBSYSTEM(""), "duplicate setting name" },
	{ SUBSYSTEM("transport = \"udp\";"), "subsystems[0].transport: udp is not allowed, it must be a string: tcp, rdma, fc or loop" },
	{ "subsystems = ( { nqn = \"nqn.x\"; address = \"flash_0\"; } );", "address flash_0 must be an IPv4 or IPv6 address or a host name" },
	{ "subsystems = ( { nqn = \"nqn.x\"; address = \"192.0.2\"; } );", "address 192.0.2 must be" },
	{ "subsystems = ( { nqn = \"nqn.x\"; address = \"a..b\"; } );", "address a..b must be" },
	{ "subsystems = ( { nqn = \"nqn.x\"; address = \"flash0.\"; } );", "address flash0. must be" },
	{ "subsystems = ( { nqn = \"nqn.x\"; address = \"-a\"; } );", "address -a must be" },
	{ "subsystems = ( { nqn = \"nqn.x\"; address = \"a b\"; } );", "address: a b is not allowed, it must be a string: an address" },
	{ SUBSYSTEM("port = 0;"), "port: 0 is not allowed, it must be a number from 1 to 65535" },
	{ SUBSYSTEM("port = 65536;"), "port: 65536 is not allowed" },
	{ SUBSYSTEM("port = \"4420\";"), "port: 4420 is not allowed" },
	{ SUBSYSTEM("port = 4420.5;"), "port: must be a number from 1 to 65535" },
	{ SUBSYSTEM("host_address = \"a,hostnqn=b\";"), "host_address: a,hostnqn=b is not allowed" },
	{ SUBSYSTEM("tls = 1;"), "tls: must be true or false" },
	{ SUBSYSTEM("tls = true; transport = \"rdma\";"), "tls requires the transport tcp" },
	{ SUBSYSTEM("tls_key_file = \"/a\";"), "tls_key_file requires tls = true" },
	{ SUBSYSTEM("dhchap_secret_file = \"a\";"), "dhchap_secret_file: a is not allowed, it must be a string: a path" },
	{ SUBSYSTEM("dhchap_ctrl_secret_file = \"/a\";"), "dhchap_ctrl_secret_file requires dhchap_secret_file" },
	{ SUBSYSTEM("io_queues = -1;"), "io_queues: -1 is not allowed" },
	{ SUBSYSTEM("write_queues = 65536;"), "write_queues: 65536 is not allowed" },
	{ SUBSYSTEM("poll_queues = -1;"), "poll_queues: -1 is not allowed" },
	{ SUBSYSTEM("queue_size = 8;"), "queue_size: 8 is not allowed, it must be a number from 16 to 1024" },
	{ SUBSYSTEM("fast_io_fail = -2;"), "fast_io_fail: -2 is not allowed" },
	{ SUBSYSTEM("fast_io_fail = 9; ctrl_loss = 8;"), "fast_io_fail 9 must not exceed ctrl_loss 8" },
	{ SUBSYSTEM("ctrl_loss = 86401;"), "ctrl_loss: 86401 is not allowed" },
	{ SUBSYSTEM("reconnect_delay = 0;"), "reconnect_delay: 0 is not allowed" },
	{ SUBSYSTEM("keep_alive = 0;"), "keep_alive: 0 is not allowed" },
	{ SUBSYSTEM("header_digest = \"yes\";"), "header_digest: must be true or false" },
	{ SUBSYSTEM("data_digest = 0;"), "data_digest: must be true or false" },
	{ SUBSYSTEM("prot = 1;"), "subsystems[0].prot: unknown setting" },
	{ "subsystems = ( { nqn = \"nqn.x\"; address = \"192.0.2.7\"; }, { nqn = \"nqn.x\"; address = \"192.0.2.7\"; } );",
	  "subsystems[1]: duplicate: an earlier group has the same subsystem and address" },
	{ "discovery = ( { } );", "discovery[0]: address is missing" },
	{ "discovery = ( { address = \"192.0.2.7\"; nqn = \"nqn.x\"; } );", "discovery[0].nqn: unknown setting" },
	{ "pools = ( { } );", "pools[0]: name is missing" },
	{ "pools = ( { name = \".\"; } );", "pools[0].name: . is not allowed, it must be a string: 1 to 31 letters" },
	{ "pools = ( { name = 1; } );", "pools[0].name: must be a string" },
	{ "pools = ( { name = \"a\"; }, { name = \"a\"; } );", "pools[1]: duplicate: an earlier group of this file has the name a" },
	{ THE_POOL("uuid = \"x\";"), "uuid: x is not allowed" },
	{ THE_POOL("members = ( \"nvme0n1\" );"), "members[0]: nvme0n1 is not allowed" },
	{ THE_POOL("members = ( \"/a\", \"/a\" );"), "pools[0]: members: /a is listed twice" },
	{ THE_POOL("members = \"/a\";"), "members: must be a list of at most 64 strings" },
	{ THE_POOL("pod = 1;"), "pools[0].pod: must be a group of settings" },
	{ THE_POOL("pod: { };"), "pools[0].pod: name is missing" },
	{ THE_POOL("pod: { seed_of = \"/dev/x\"; };"), "pools[0].pod: name is missing" },
	{ THE_POOL("pod: { name = \"a/b\"; };"), "pools[0].pod.name: a/b is not allowed, it must be a string: 1 to 31 letters" },
	{ THE_POOL("pod: { name = \"a\"; adopt_after = 9; };"), "pools[0].pod.adopt_after: 9 is not allowed" },
	{ THE_POOL("pod: { name = \"a\"; seed_of = \"x\"; };"), "pools[0].pod.seed_of: x is not allowed, it must be a string: a path" },
	{ THE_POOL("pod: { name = \"a\"; follow = 1; };"), "pools[0].pod.follow: must be true or false" },
	{ THE_POOL("pod: { name = \"a\"; uuid = \"x\"; };"), "pools[0].pod.uuid: unknown setting; known settings:\n\tname\n" },
	{ THE_POOL("tenants: { };"), "pools[0].tenants: must be a list of at most 704 groups of settings" },
	{ THE_POOL("tenants = ( \"a\" );"), "pools[0].tenants[0]: must be a group: { ... }" },
	{ THE_POOL("tenants = ( { mode = \"0600\"; } );"), "pools[0].tenants[0]: name is missing" },
	{ THE_POOL("tenants = ( { name = \"a/b\"; } );"), "tenants[0].name: a/b is not allowed, it must be a string: 1 to 31 letters" },
	{ THE_POOL("tenants = ( { name = \"changes\"; } );"), "tenants[0].name: changes is not allowed" },
	{ THE_POOL("tenants = ( { name = \"changes\"; } );"), "tenants[0].name: changes is not allowed" },
	{ THE_POOL("tenants = ( { name = \"peers\"; } );"), "tenants[0].name: peers is not allowed" },
	{ THE_POOL("tenants = ( { name = \"a\"; }, {\n name = \"a\"; } );"), ":1: pools[0].tenants[1]: duplicate: an earlier group of this list has the name a" },
	{ TENANT("uid = 1;"), "pools[0].tenants[0].uid: unknown setting; known settings:\n\tname\n\tmode\n" },
	{ TENANT("mode = 600;"), "tenants[0].mode: must be a string: an octal mode except 0, such as 0660" },
	{ TENANT("mode = \"000\";"), "tenants[0].mode: 000 is not allowed" },
	{ TENANT("mode = \"1777\";"), "tenants[0].mode: 1777 is not allowed" },
	{ TENANT("owner = \"no-such-one\";"), "tenants[0].owner: no-such-one is not allowed, it must be a string: the name of a user of this host, or a number" },
	{ TENANT("owner = \"4294967295\";"), "tenants[0].owner: 4294967295 is not allowed" },
	{ TENANT("owner = \"-1\";"), "tenants[0].owner: -1 is not allowed" },
	{ TENANT("group = \"no-such-one\";"), "tenants[0].group: no-such-one is not allowed, it must be a string: the name of a group" },
	{ TENANT("group = \"99999999999\";"), "tenants[0].group: 99999999999 is not allowed" },
	{ TENANT("quota_bytes = \"1.5G\";"), "tenants[0].quota_bytes: 1.5G is not allowed" },
	{ TENANT("quota_bytes = -1;"), "tenants[0].quota_bytes: -1 is not allowed" },
	{ TENANT("quota_bytes_soft = -1;"), "tenants[0].quota_bytes_soft: -1 is not allowed" },
	{ TENANT("quota_bytes = \"1G\"; quota_bytes_soft = \"2G\";"), "tenants[0]: quota_bytes_soft 2147483648 must not exceed quota_bytes 1073741824" },
	{ TENANT("quota_blocks = \"1K\";"), "tenants[0].quota_blocks: 1K is not allowed" },
	{ TENANT("quota_blocks_soft = -1;"), "tenants[0].quota_blocks_soft: -1 is not allowed" },
	{ TENANT("quota_blocks = 1; quota_blocks_soft = 2;"), "tenants[0]: quota_blocks_soft 2 must not exceed quota_blocks 1" },
	{ TENANT("quota_dram = \"lots\";"), "tenants[0].quota_dram: lots is not allowed" },
	{ TENANT("weight = 0;"), "tenants[0].weight: 0 is not allowed, it must be a number from 1 to 10000" },
	{ TENANT("weight = 10001;"), "tenants[0].weight: 10001 is not allowed" },
	{ TENANT("shared = \"a/b\";"), "tenants[0].shared: a/b is not allowed, it must be a string: the name of another tenant of the pool" },
	{ TENANT("shared = \"a\";"), "tenants[0]: shared must name another tenant" },
	{ THE_POOL("tenants = ( { name = \"default\"; mode = \"0600\"; } );"), "tenants[0]: default must not have mode, owner or group" },
	{ THE_POOL("tenants = ( { name = \"nvme-kv\"; owner = \"root\"; } );"), "tenants[0]: nvme-kv must not have mode, owner or group" },
	{ THE_POOL("tenants = ( { name = \"default\"; encrypted = true; } );"), "tenants[0]: default cannot be encrypted" },
	{ THE_POOL("tenants = ( { name = \"nvme-kv\"; encrypted = true; } );"), "tenants[0]: nvme-kv cannot be encrypted" },
	{ TENANT("encrypted = 1;"), "tenants[0].encrypted: must be true or false" },
	{ "master_key = \"m\";", "master_key: m is not allowed, it must be a string: user: or trusted:" },
	{ "master_key = \"user:\";", "master_key: user: is not allowed" },
	{ "master_key = \"logon:m\";", "master_key: logon:m is not allowed" },
	{ "master_key = \"user:a b\";", "master_key: user:a b is not allowed" },
	{ THE_POOL("degraded_after = -2;"), "degraded_after: -2 is not allowed" },
	{ THE_POOL("block_size = \"65M\";"), "block_size: 65M is not allowed" },
	{ THE_POOL("block_size = \"2MBs\";"), "block_size: 2MBs is not allowed" },
	{ THE_POOL("block_size = \"99999999999T\";"), "block_size: 99999999999T is not allowed" },
	{ THE_POOL("model = \"a\\nb\";"), "model: a" },
	{ THE_POOL("ready_below = 101;"), "ready_below: 101 is not allowed, it must be a number from 0 to 100" },
	{ "exporters = ( );", ":1: exporters: must be a group" },
	{ "exporters: {\n\n zmq: { }; };", ":3: exporters.zmq: unknown setting; known settings:\n\tmetrics\n" },
	{ "exporters: { metrics = 1; };", "exporters.metrics: must be a group" },
	{ "exporters: { metrics: { frob = 1; }; };", "exporters.metrics.frob: unknown setting" },
	{ "exporters: { metrics: {\n port = 0; }; };", ":2: exporters.metrics.port: 0 is not allowed, it must be a number from 1 to 65535" },
	{ "exporters: { metrics: { port = 65536; }; };", "exporters.metrics.port: 65536 is not allowed" },
	{ "exporters: { metrics: { address = \"localhost\"; }; };", "exporters.metrics.address: localhost is not allowed, it must be a string: an IPv4 or IPv6 address" },
	{ "exporters: { zmq: { }; };", "known settings:\n\tmetrics\n\tkv_events\n" },
	{ "exporters: { kv_events = ( ); };", "exporters.kv_events: must be a group" },
	{ KV_EVENTS("\nfrob = 1;"), ":2: exporters.kv_events.frob: unknown setting; known settings:\n\tendpoint\n" },
	{ KV_EVENTS("endpoint = 5557;"), "kv_events.endpoint: must be a string: tcp://ADDRESS:PORT" },
	{ KV_EVENTS("endpoint = \"tcp://localhost:5557\";"), "kv_events.endpoint: tcp://localhost:5557 is not allowed" },
	{ KV_EVENTS("endpoint = \"tcp://*:0\";"), "endpoint: tcp://*:0 is not allowed" },
	{ KV_EVENTS("endpoint = \"tcp://*:65536\";"), "endpoint: tcp://*:65536 is not allowed" },
	{ KV_EVENTS("endpoint = \"tcp://::1:5557\";"), "endpoint: tcp://::1:5557 is not allowed" },
	{ KV_EVENTS("endpoint = \"tcp://[127.0.0.1]:5557\";"), "is not allowed" },
	{ KV_EVENTS("endpoint = \"tcp://:5557\";"), "is not allowed" },
	{ KV_EVENTS("endpoint = \"tcp://[]:5557\";"), "is not allowed" },
	{ KV_EVENTS("endpoint = \"tcp://*\";"), "is not allowed" },
	{ KV_EVENTS("endpoint = \"\";"), "must be a string: tcp://ADDRESS:PORT" },
	{ KV_EVENTS("endpoint = \"ipc://here\";"), "endpoint: ipc://here is not allowed" },
	{ KV_EVENTS("endpoint = \"ipc:///run/kvblkd/events\";"), "endpoint: ipc:///run/kvblkd/events is not allowed, it must be a string: tcp://ADDRESS:PORT" },
	{ KV_EVENTS("replay = \"ipc:///run/kvblkd/replay\";"), "replay: ipc:///run/kvblkd/replay is not allowed" },
	{ KV_EVENTS("replay = \"udp://*:5558\";"), "kv_events.replay: udp://*:5558 is not allowed" },
	{ KV_EVENTS("\nreplay = \"tcp://127.0.0.1:5557\";"), ":1: exporters.kv_events: endpoint and replay must differ" },
	{ KV_EVENTS("topic = \"a\\x01\";"), "kv_events.topic: " },
	{ KV_EVENTS("medium = \"\";"), "kv_events.medium: must be a string: up to 55 characters" },
	{ KV_EVENTS("medium = \"a disk\";"), "kv_events.medium: a disk is not allowed" },
	{ KV_EVENTS("pools = \"kv0\";"), "kv_events.pools: must be a list of at most 64 strings, each the name of a pool" },
	{ KV_EVENTS("pools = ( \"/dev/x\" );"), "kv_events.pools[0]: /dev/x is not allowed" },
	{ KV_EVENTS("sources = ( \"tcp://*:5557\" );"), "kv_events.sources[0]: tcp://*:5557 is not allowed" },
	{ KV_EVENTS("sources = ( \"tcp://a:b:1\" );"), "kv_events.sources[0]: tcp://a:b:1 is not allowed" },
	{ KV_EVENTS("sources = ( \"tcp://127.0.0.1:5557\" );"), "kv_events: sources: tcp://127.0.0.1:5557 is kvblkd's own endpoint" },
	{ KV_EVENTS("sources = ( \"tcp://a:1\", \"tcp://b:1\", \"tcp://a:1\" );"), "kv_events: sources: tcp://a:1 is listed twice" },
	{ KV_EVENTS("hash_only = 1;"), "kv_events.hash_only: must be true or false" },
	{ KV_EVENTS("parts = 0;"), "kv_events.parts: 0 is not allowed, it must be a number from 1 to 4096" },
	{ KV_EVENTS("buffer_bytes = 65535;"), "kv_events.buffer_bytes: 65535 is not allowed, it must be a number from 65536 to 1099511627776" },
	{ KV_EVENTS("token_bytes = -1;"), "kv_events.token_bytes: -1 is not allowed, it must be a number from 1048576 to 35184372088832" },
	{ KV_EVENTS("buffer = 10000;"), "kv_events.buffer: unknown setting" },
	{ KV_EVENTS("journal = 1024;"), "kv_events.journal: unknown setting" },
	{ KV_EVENTS("changes = 512;"), "kv_events.changes: 512 is not allowed, it must be a number from 1024 to 4194304" },
	{ KV_EVENTS("changes = 1500;"), "exporters.kv_events: changes 1500 must be a power of two" },
	{ KV_EVENTS("repeat = 3601;"), "kv_events.repeat: 3601 is not allowed, it must be a number from 0 to 3600" },
	{ "prestage = 1;", "prestage: must be a group" },
	{ "\nprestage: { };", ":2: prestage: pools is missing" },
	{ PRESTAGE("frob = 1;"), "prestage.frob: unknown setting; known settings:\n\tsocket\n" },
	{ PRESTAGE("socket = \"prestage.sock\";"), "prestage.socket: prestage.sock is not allowed, it must be a string: a path" },
	{ PRESTAGE("socket = \"/" X100 "1234567\";"), "at most 107 characters" },
	{ PRESTAGE("group = \"a b\";"), "prestage.group: a b is not allowed, it must be a string: the name of a group" },
	{ PRESTAGE("mode = 660;"), "prestage.mode: must be a string: an octal mode" },
	{ PRESTAGE("mode = \"1777\";"), "prestage.mode: 1777 is not allowed" },
	{ PRESTAGE("mode = \"068\";"), "prestage.mode: 068 is not allowed" },
	{ "prestage: { pools = ( \"a/b\" ); };", "prestage.pools[0]: a/b is not allowed" },
	{ PRESTAGE("parallel = 17;"), "prestage.parallel: 17 is not allowed, it must be a number from 1 to 16" },
	{ PRESTAGE("waiting = 0;"), "prestage.waiting: 0 is not allowed" },
	{ PRESTAGE("bandwidth = -1;"), "prestage.bandwidth: -1 is not allowed" },
	{ PRESTAGE("request_bytes = \"2MBs\";"), "prestage.request_bytes: 2MBs is not allowed" },
	{ PRESTAGE("body = 4095;"), "prestage.body: 4095 is not allowed" },
	{ PRESTAGE("sessions = -1;"), "prestage.sessions: -1 is not allowed" },
	{ PRESTAGE("session_bytes = -1;"), "prestage.session_bytes: -1 is not allowed" },
	{ PRESTAGE("lease = 3601;"), "prestage.lease: 3601 is not allowed" },
	{ "pod = 1;", "pod: must be a group" },
	{ "\npod: { };", ":2: pod: listen is missing" },
	{ "pod: { peers = ( \"tcp://b:5570\" ); };", "pod: listen is missing" },
	{ "pod: { listen = \"tcp://a.example:5570\"; };", "pod.listen: tcp://a.example:5570 is not allowed, it must be a string: tcp://ADDRESS:PORT" },
	{ POD("frob = 1;"), "pod.frob: unknown setting; known settings:\n\tlisten\n" },
	{ POD("peers = \"tcp://b:5570\";"), "pod.peers: must be a list of at most 1024 strings, each tcp://HOST:PORT" },
	{ POD("peers = ( \"ipc:///b\" );"), "pod.peers[0]: ipc:///b is not allowed" },
	{ POD("peers = ( \"tcp://*:5570\" );"), "pod.peers[0]: tcp://*:5570 is not allowed" },
	{ "pod: { listen = \"tcp://192.0.2.1:5570\"; peers = ( \"tcp://192.0.2.1:5570\" ); };", "pod: peers: tcp://192.0.2.1:5570 is kvblkd's own endpoint" },
	{ POD("peers = ( \"tcp://b:1\", \"tcp://b:1\" );"), "pod: peers: tcp://b:1 is listed twice" },
	{ "directory = 1;", "directory: must be a group" },
	{ "\ndirectory: { };", ":2: directory: engine is missing" },
	{ "\ndirectory: { };", ":2: directory: servers is missing" },
	{ "directory: { engine = \"redis\"; };", "directory.engine: redis is not allowed, it must be a string: valkey" },
	{ SERVERS(""), "directory: servers is empty" },
	{ SERVERS("\"a.example:6379\""), "directory.servers[0]: a.example:6379 is not allowed, it must be a list of at most 64 strings, each ADDRESS:PORT" },
	{ SERVERS("\"192.0.2.3\""), "directory.servers[0]: 192.0.2.3 is not allowed" },
	{ SERVERS("\"192.0.2.3:0\""), "directory.servers[0]: 192.0.2.3:0 is not allowed" },
	{ SERVERS("\"*:6379\""), "directory.servers[0]: *:6379 is not allowed" },
	{ SERVERS("\"" X100 ":6379\""), "directory.servers[0]: xxxx" },
	{ SERVERS("\"::1:6379\""), "directory.servers[0]: ::1:6379 is not allowed" },
	{ SERVERS("\"[::1]:1\", \"[::1]:1\""), "directory: servers: [::1]:1 is listed twice" },
	{ DIRECTORY("password_file = \"x\";"), "directory.password_file: x is not allowed, it must be a string: a path" },
	{ DIRECTORY("span = 0;"), "directory.span: 0 is not allowed, it must be a number from 1 to 4096" },
	{ DIRECTORY("ask_ms = 1001;"), "directory.ask_ms: 1001 is not allowed, it must be a number from 1 to 1000" },
	{ DIRECTORY("ttl_s = 59;"), "directory.ttl_s: 59 is not allowed, it must be a number from 60 to 2592000" },
	{ DIRECTORY("frob = 1;"), "directory.frob: unknown setting; known settings:\n\tengine\n" },
	{ THE_POOL("tunables = 1;"), "tunables: must be a group of tunables" },
	{ THE_POOL("tunables: { frob = 1; };"), "pools[0].tunables.frob: unknown tunable; known tunables:" },
	{ THE_POOL("tunables: { frob = 1; };"), "\n\tbounce_chunks\n" },
	{ THE_POOL("tunables: { suspect_ms = 99; };"), "tunables.suspect_ms: 99 is not allowed, it must be a number from 100 to 3600000" },
	{ THE_POOL("tunables: { suspect_ms = -1; };"), "tunables.suspect_ms: -1 is not allowed" },
	{ THE_POOL("tunables: { suspect_ms = true; };"), "tunables.suspect_ms: must be a number from 100" },
	{ THE_POOL("tunables: { integrity = \"ful\"; };"), "integrity: ful is not allowed, it must be header, full or producer" },
	{ THE_POOL("tunables: { low_permille = 40; high_permille = 40; };"),
	  "low_permille 40 must be below high_permille 40" },
	{ THE_POOL("budget = 1;"), "pools[0].budget: must be a group of settings" },
	{ THE_POOL("budget: { };"), "pools[0].budget: drive_writes, bytes or life_days is missing" },
	{ THE_POOL("\nbudget: { interval = 60; };"), ":2: pools[0].budget: drive_writes, bytes or life_days" },
	{ THE_POOL("budget: { frob = 1; };"), "pools[0].budget.frob: unknown setting; known settings:\n\tdrive_writes\n" },
	{ THE_POOL("budget: { drive_writes = 0; };"), "budget.drive_writes: 0 is not allowed, it must be a number above 0, up to 1000" },
	{ THE_POOL("budget: { drive_writes = -0.1; };"), "drive_writes: -0.1 is not allowed" },
	{ THE_POOL("budget: { drive_writes = 1000.5; };"), "drive_writes: 1000.5 is not allowed" },
	{ THE_POOL("budget: { drive_writes = \"1\"; };"), "drive_writes: must be a number above 0" },
	{ THE_POOL("budget: { bytes = \"1K\"; };"), "budget.bytes: 1K is not allowed, it must be a number from 1048576" },
	{ THE_POOL("budget: { life_days = 0; };"), "budget.life_days: 0 is not allowed" },
	{ THE_POOL("budget: { bytes = \"1T\"; interval = 0; };"), "budget.interval: 0 is not allowed, it must be a number from 1 to 3600" },
	{ THE_POOL("reserve: { seconds = 3601; };"), "reserve.seconds: 3601 is not allowed" },
	{ THE_POOL("reserve: { most_permille = 1; };"), "reserve.most_permille: 1 is not allowed, it must be a number from 2 to 500" },
	{ THE_POOL("reserve: { seconds = 5; }; tunables: { low_permille = 40; };"),
	  "pools[0]: low_permille must not be among the tunables, because reserve changes it" },
};

TEST(test_wrong)
{
	struct config config;
	unsigned int nr;
	char *said;
	size_t len;
	FILE *to;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		to = open_memstream(&said, &len);
		nr = config_parse(wrong[i].text, &config, to);
		fclose(to);
		config_free(&config);
		if (!nr || !strstr(said, wrong[i].says))
			fail_msg("%s\nmust say: %s\nsays %u: %s", wrong[i].text,
				 wrong[i].says, nr, said);
		free(said);
	}
}

/* An invalid setting is skipped, or its group if that would mean something else without it. */
TEST(test_left_out)
{
	static const char text[] =
		"modules = [ \"nvme-tcp\", \"no/name\" ]; host_nqn = \"nqn.host\"; colour = 3;\n"
		"subsystems = ( { nqn = \"nqn.a\"; address = \"192.0.2.1\"; io_queues = -1; later = true; },\n"
		"  { nqn = \"nqn.b\"; address = \"192.0.2.2\"; tls = \"yes\"; },\n"
		"  { nqn = \"nqn.c\"; address = \"192.0.2.3\"; dhchap_secret_file = \"relative\"; },\n"
		"  { address = \"192.0.2.4\"; },\n"
		"  { nqn = \"nqn.d\"; address = \"192.0.2.5\"; } );\n"
		"pools = ( { name = \"kv0\"; frob = 1; degraded_after = 60; ready = \"most\";\n"
		"    tunables: { suspect_ms = 1; old_tunable = 1; discard = 0; low_permille = 50; high_permille = 40; }; },\n"
		"  { name = \"kv1\"; uuid = \"x\"; }, { name = \"kv2\"; members = ( \"x\" ); }, { name = \"kv3\"; },\n"
		"  { name = \"kv3\"; degraded_after = 1; } );\n"
		"exporters: { metrics: { port = 0; address = \"192.0.2.9\"; }; traces: { };\n"
		"  kv_events: { changes = 1500; sources = ( \"tcp://127.0.0.1:5557\", \"ipc:///x\" ); parts = 2; }; };\n"
		"prestage: { waiting = 5; };\n";
	struct config config;
	char *said;
	size_t len;
	FILE *to = open_memstream(&said, &len);

	assert_int_equal(config_parse(text, &config, to), 20);
	fclose(to);
	free(said);
	assert_int_equal(config.modules.nr, 1);
	assert_int_equal(config.nr_subsystems, 2);
	assert_string_equal(config.subsystems[0].nqn, "nqn.a");
	assert_int_equal(config.subsystems[0].io_queues, 0);
	assert_string_equal(config.subsystems[1].nqn, "nqn.d");
	assert_int_equal(config.nr_pools, 2);
	assert_string_equal(config.pools[0].name, "kv0");
	assert_int_equal(config.pools[0].degraded_after, 60);
	assert_null(config.pools[0].ready);
	assert_null(config.pools[0].tunables[tunable_find("suspect_ms") - tunables]);
	assert_string_equal(config.pools[0].tunables[tunable_find("discard") - tunables], "0");
	assert_null(config.pools[0].tunables[tunable_find("low_permille") - tunables]);
	assert_string_equal(config.pools[1].name, "kv3");
	assert_int_equal(config.pools[1].degraded_after, -1);
	assert_true(config.pools[1].pod.follow);
	assert_string_equal(config.metrics.address, "192.0.2.9");
	assert_int_equal(config.metrics.port, 9733);
	assert_int_equal(config.kv_events.changes, 65536);
	assert_int_equal(config.kv_events.parts, 2);
	assert_int_equal(config.kv_events.sources.nr, 1);
	/* pools is required */
	assert_null(config.prestage.socket);
	config_free(&config);
}

/* A tenant with an invalid setting is skipped, and no other; a later file replaces the list. */
TEST(test_tenants)
{
	static const char text[] =
		"pools = ( { name = \"kv0\"; tenants = (\n"
		"  { name = \"blue\"; mode = \"0640\"; owner = \"root\"; group = \"4294967294\"; quota_bytes = \"5T\";\n"
		"    quota_bytes_soft = 1; quota_blocks = 9; quota_blocks_soft = 0; quota_dram = \"1G\"; weight = 300;\n"
		"    shared = \"common\"; },\n"
		"  { name = \"bad\"; weight = 0; }, { name = \"blue\"; }, 7, { name = \"common\"; shared = \"\"; } ); },\n"
		"  { name = \"kv1\"; } );\n";
	const struct config_tenant *tenant;
	FILE *to = fopen("/dev/null", "w");
	struct config config;

	assert_int_equal(config_parse(text, &config, to), 3);
	fclose(to);
	assert_int_equal(config.nr_pools, 2);
	assert_int_equal(config.pools[1].tenants.nr, 0);
	assert_int_equal(config.pools[0].tenants.nr, 2);
	tenant = config.pools[0].tenants.item;
	assert_string_equal(tenant->name, "blue");
	assert_string_equal(tenant->mode, "0640");
	assert_int_equal(tenant->uid, 0);
	assert_int_equal(tenant->gid, 4294967294);
	assert_int_equal(tenant->quota_bytes, 5ll << 40);
	assert_int_equal(tenant->quota_bytes_soft, 1);
	assert_int_equal(tenant->quota_blocks, 9);
	assert_int_equal(tenant->quota_blocks_soft, 0);
	assert_int_equal(tenant->quota_dram, 1 << 30);
	assert_int_equal(tenant->weight, 300);
	assert_string_equal(tenant->shared, "common");
	tenant++;
	assert_string_equal(tenant->name, "common");
	assert_string_equal(tenant->shared, "");
	assert_null(tenant->mode);
	assert_true(tenant->uid < 0 && tenant->gid < 0 && tenant->quota_bytes < 0 && tenant->quota_bytes_soft < 0);
	assert_true(tenant->quota_blocks < 0 && tenant->quota_blocks_soft < 0 && tenant->quota_dram < 0 && tenant->weight < 0);
	config_free(&config);
}

/*
 * A host whose NQN or id is invalid must not connect under another identity, and an invalid
 * integrity must not verify less.
 */
TEST(test_never_less)
{
	static const char text[] =
		"%s = \"none\";\n"
		"subsystems = ( { nqn = \"nqn.a\"; address = \"192.0.2.1\"; host_nqn = \"nqn.h\"; },\n"
		"  { nqn = \"nqn.b\"; address = \"192.0.2.1\"; host_id = \"8ade7992-b201-49f6-9e07-387c3d214fe4\"; } );\n"
		"discovery = ( { address = \"192.0.2.2\"; } );\n"
		"pools = ( { name = \"kv0\"; tunables: { integrity = \"fulll\"; }; } );\n"
		"exporters: { kv_events: { sources = ( \"tcp://a:1\", \"tcp://b:1\", \"tcp://a:1\", \"tcp://b:1\", \"tcp://a:1\" ); }; };\n";
	struct config config;
	char whole_text[1024];
	FILE *to = fopen("/dev/null", "w");

	for (int i = 0; i < 2; i++) {
		snprintf(whole_text, sizeof(whole_text), text, i ? "host_id" : "host_nqn");
		assert_int_equal(config_parse(whole_text, &config, to), 5);
		assert_int_equal(config.nr_subsystems, 1);
		assert_string_equal(config.subsystems[0].nqn, i ? "nqn.b" : "nqn.a");
		assert_int_equal(config.nr_discovery, 0);
		assert_string_equal(config.pools[0].tunables[tunable_find("integrity") - tunables], "full");
		assert_int_equal(config.kv_events.sources.nr, 2);
		config_free(&config);
	}
	fclose(to);
}

/* Sizes and times with the command's units. */
TEST(test_units)
{
	static const struct {
		const char *tunable;
		const char *text;
		const char *value;	/* NULL: not allowed */
	} rows[] = {
		{ "suspect_ms", "3000", "3000" }, { "suspect_ms", "3s", "3000" }, { "suspect_ms", "500ms", "500" },
		{ "suspect_ms", "2min", "120000" }, { "suspect_ms", "1h", "3600000" }, { "suspect_ms", "2h", NULL },
		{ "suspect_ms", "3 s", NULL }, { "suspect_ms", "3S", NULL }, { "suspect_ms", "3K", NULL },
		{ "suspect_ms", "0500", NULL }, { "suspect_ms", "-3s", NULL }, { "suspect_ms", "99999999999999999999s", NULL },
		{ "dram_bytes", "16M", "16777216" }, { "dram_bytes", "16MB", "16777216" },
		{ "dram_bytes", "16MiB", "16777216" }, { "dram_bytes", "16m", "16777216" },
		{ "dram_bytes", "0x1000000", "16777216" }, { "dram_bytes", "16Mb", NULL }, { "dram_bytes", "16MBs", NULL },
		{ "dram_node", "-1", "-1" }, { "dram_node", "0", "0" }, { "dram_node", "1023", "1023" },
		{ "dram_node", "-2", NULL }, { "dram_node", "1024", NULL }, { "dram_node", "--1", NULL },
		{ "dram_node", "-", NULL }, { "dram_node", "- 1", NULL }, { "dram_bytes", "-1", NULL },
		{ "dram_bytes", "16s", NULL }, { "dram_bytes", "M", NULL }, { "dram_bytes", "99999999999T", NULL },
	};
	char value[TUNABLE_LEN];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(tunable_parse(tunable_find(rows[i].tunable), rows[i].text, value), !!rows[i].value);
		if (rows[i].value)
			assert_string_equal(value, rows[i].value);
	}
}

/* Ports as a discovery log page has them. */
TEST(test_ports)
{
	static const char *const wrong[] = { "", "0", "-5", "+5", " 5", "5 ", "65536", "99999999", "4420x", "none" };

	assert_int_equal(port_of("1"), 1);
	assert_int_equal(port_of("04420"), 4420);
	assert_int_equal(port_of("65535"), 65535);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(port_of(wrong[i]), 0);
}

static char dir[] = "/tmp/config_test.XXXXXX";

static void put_file(const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

/* Load the file "c" of the directory, with its messages in @said. */
static unsigned int read_there(struct config *config, char said[4096])
{
	FILE *to = fmemopen(said, 4096, "w");
	char path[128];
	unsigned int nr;

	snprintf(path, sizeof(path), "%s/c", dir);
	nr = config_load(path, config, to);
	fclose(to);
	return nr;
}

TEST(test_files)
{
	size_t suspect = tunable_find("suspect_ms") - tunables;
	size_t discard = tunable_find("discard") - tunables;
	struct config config;
	char said[4096], path[128];

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/c.d", dir);
	mkdir(path, 0700);
	assert_int_equal(read_there(&config, said), 1);
	assert_non_null(strstr(said, "/c: No such file or directory"));
	assert_true(config.unreadable);
	config_free(&config);

	put_file("c", "@include \"more\"\n" THE_POOL("tunables: { suspect_ms = 1000; };"));
	assert_int_equal(read_there(&config, said), 1);
	assert_non_null(strstr(said, "/c:1: "));
	config_free(&config);

	put_file("more", "\nmodules = [ \"a\" ];\nfrob = 1;\n");
	assert_int_equal(read_there(&config, said), 1);
	assert_non_null(strstr(said, "more:3: frob: unknown setting"));
	config_free(&config);

	/* later files override earlier ones, in alphabetical order; other names are ignored */
	put_file("more", "modules = [ \"a\" ];\n");
	put_file("c.d/20.conf", THE_POOL("tunables: { suspect_ms = 3000; };"));
	put_file("c.d/10.conf", THE_POOL("tunables: { suspect_ms = 2000; discard = 0; };"));
	put_file("c.d/30.conf~", "frob");
	assert_int_equal(read_there(&config, said), 0);
	assert_int_equal(config.nr_pools, 1);
	assert_string_equal(config.pools[0].tunables[suspect], "3000");
	assert_string_equal(config.pools[0].tunables[discard], "0");
	assert_string_equal(config.modules.text[0], "a");
	config_free(&config);

	put_file("c.d/15.conf", "\n" THE_POOL("\ntunables: { discard = 2; };"));
	assert_int_equal(read_there(&config, said), 1);
	assert_non_null(strstr(said, "/c.d/15.conf:3: pools[0].tunables.discard: 2 is not allowed"));
	assert_string_equal(config.pools[0].tunables[discard], "0");
	config_free(&config);

	/* a drop-in with a syntax error, or an invalid group in one, changes nothing */
	put_file("c.d/15.conf", "pools = ( {");
	put_file("c.d/16.conf", THE_POOL("uuid = \"x\"; degraded_after = 7;"));
	assert_int_equal(read_there(&config, said), 2);
	assert_false(config.unreadable);
	assert_int_equal(config.nr_pools, 1);
	assert_int_equal(config.pools[0].degraded_after, -1);
	assert_string_equal(config.pools[0].tunables[suspect], "3000");
	config_free(&config);

	/* an invalid singleton group keeps the settings of an earlier file */
	put_file("c", KV_EVENTS("parts = 3; endpoint = \"tcp://127.0.0.1:1\"; sources = ( \"tcp://a:1\" );") PRESTAGE("waiting = 3;"));
	put_file("c.d/15.conf", "prestage: { lease = 10; };");
	put_file("c.d/16.conf", KV_EVENTS("parts = 4; replay = \"tcp://127.0.0.1:1\";") "prestage: { waiting = 4; mode = \"9\"; };");
	assert_int_equal(read_there(&config, said), 2);
	assert_string_equal(config.kv_events.endpoint, "tcp://127.0.0.1:1");
	assert_string_equal(config.kv_events.replay, "tcp://127.0.0.1:5558");
	assert_string_equal(config.kv_events.sources.text[0], "tcp://a:1");
	assert_int_equal(config.kv_events.parts, 3);
	assert_string_equal(config.prestage.pools.text[0], "kv0");
	assert_int_equal(config.prestage.lease, 10);
	assert_int_equal(config.prestage.waiting, 3);
	config_free(&config);
	snprintf(path, sizeof(path), "rm -r %s", dir);
	assert_int_equal(system(path), 0);
}

/* Mutated files, under sanitizers. KVBLK_FUZZ=N: N files. */
TEST(test_mutated)
{
	static const char bits[] = "{}()[];:=,\"\\ \n0-9aL.@#/*";
	const char *rounds = getenv("KVBLK_FUZZ");
	FILE *to = fopen("/dev/null", "w");
	char text[sizeof(whole) + 1];
	struct config config;
	size_t at, len;

	srandom(1);
	for (long i = rounds ? atol(rounds) : 20000; i > 0; i--) {
		len = sizeof(whole) - 1;
		memcpy(text, whole, len + 1);
		for (long changes = 1 + random() % 4; changes; changes--) {
			at = (size_t)random() % len;
			if (random() % 4 == 0)
				memmove(text + at, text + at + 1, len-- - at);
			else if (random() % 4 == 0)
				text[at] = (char)random();
			else
				text[at] = bits[(size_t)random() % (sizeof(bits) - 1)];
		}
		config_parse(text, &config, to);
		config_free(&config);
	}
	fclose(to);
}

/* libconfig 1.5 leaks texts that end in an error. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libconfig.so";
}

TEST_MAIN("config")
