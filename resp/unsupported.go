package resp

import (
	"fmt"
	"strings"
)

// families are the commands of Redis that are not supported, and what to use instead. A command
// that DataCommands has is supported, even if a family names it.
var families = []struct{ commands, instead string }{
	{`hset hget hmset hmget hgetall hdel hexists hincrby hincrbyfloat hkeys hvals hlen hsetnx hstrlen hscan hrandfield hexpire hpexpire hexpireat
		hpexpireat hpersist httl hpttl hexpiretime hpexpiretime hgetdel hgetex hsetex`,
		"values are strings: keep the fields in one value (JSON, for instance) with GET and SET, and FR.CAS or WATCH to change it; or each in a key of its own, with MGET and MSET"},
	{`lpush rpush lpop rpop lpushx rpushx lrange llen lindex lset linsert lrem ltrim lmove blmove rpoplpush brpoplpush blpop brpop lmpop blmpop lpos`,
		"values are strings: keep a short list in one value, with FR.CAS or WATCH to change it; for a queue, use a message broker"},
	{`sadd srem smembers sismember smismember scard spop srandmember smove sdiff sdiffstore sinter sinterstore sintercard sunion sunionstore sscan`,
		"values are strings: keep a small set in one value, with FR.CAS or WATCH to change it, or each member in a key of its own, with SETNX, EXISTS and DEL; sets that merge are causal spaces (--space NAME=causal,merge=union)"},
	{`zadd zrem zrange zrangestore zrangebyscore zrevrange zrevrangebyscore zrangebylex zrevrangebylex zscore zmscore zcard zcount zlexcount zincrby zrank zrevrank
		zpopmin zpopmax bzpopmin bzpopmax zmpop bzmpop zremrangebyscore zremrangebyrank zremrangebylex zscan zrandmember zunion zunionstore zinter zinterstore zintercard zdiff zdiffstore`,
		"values are strings: have the database sort, and keep its answer in one value"},
	{`xadd xread xrange xrevrange xlen xdel xtrim xgroup xreadgroup xack xpending xclaim xautoclaim xinfo xsetid`, "use a message broker, or the database"},
	{`pfadd pfcount pfmerge geoadd geosearch geosearchstore geodist geohash geopos georadius georadiusbymember georadius_ro georadiusbymember_ro pfdebug pfselftest setbit getbit bitcount bitpos bitop bitfield bitfield_ro`,
		"values are strings: compute this in the database, and keep its answer"},
	{`publish psubscribe punsubscribe ssubscribe sunsubscribe spublish pubsub`, "use a message broker; CLIENT TRACKING tells of changed keys"},
	{`eval_ro evalsha_ro fcall fcall_ro function`, "there is no Lua here; EVAL knows the scripts of common locks and counters (docs/clients.md); else use WATCH, MULTI and EXEC, or FR.CAS"},
	{`rename renamenx copy move dump restore restore-asking migrate sort sort_ro swapdb object lcs`, "read the key with GET and PTTL, and write the other with SET"},
	{`cluster asking readonly readwrite`, "CLUSTER is not for freshet: any node takes every key, so connect as to a single Redis (docs/clients.md)"},
	{`replicaof slaveof sync psync replconf wait waitaof failover role`, "freshet replicates by itself; FR.STATE shows the cluster"},
	{`save bgsave lastsave bgrewriteaof shutdown`, "a write is durable when it is acknowledged; stop a node with SIGTERM"},
	{`monitor slowlog latency memory debug lolwut module`, "see /metrics, the log and freshet status"},
	{`acl`, "there is one password for all: --password"},
}

var instead = map[string]string{}

func init() {
	for _, f := range families {
		for _, name := range strings.Fields(f.commands) {
			instead[name] = f.instead
		}
	}
}

// unknownCommand returns the error for an unknown command. It begins as the one of Redis does,
// because some clients look for that.
func unknownCommand(args [][]byte) string {
	if len(args[0]) <= 32 {
		if s, ok := instead[strings.ToLower(string(args[0]))]; ok {
			return fmt.Sprintf("ERR unknown command '%s': it is not supported by freshet; %s", strings.ToUpper(string(args[0])), s)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ERR unknown command '%.128s', with args beginning with: ", args[0])
	for _, a := range args[1:] {
		if b.Len() > 256 {
			break
		}
		fmt.Fprintf(&b, "'%.128s' ", a)
	}
	return b.String()
}
