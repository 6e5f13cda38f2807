package redis

// reads and writes are the data commands, by name. All keys of one command are
// decided together; DEL, UNLINK, MSET and FLUSHALL over keys of several owners
// are taken apart by the router.
var reads = map[string]Command{
	"get": get, "mget": mget, "exists": exists, "touch": exists, "type": typeOf, "strlen": strlen,
	"getrange": getRange, "substr": getRange, "ttl": ttl, "pttl": ttl, "expiretime": ttl, "pexpiretime": ttl,
	"fr.getv": getVersion, "fr.version": onlyVersion,
}

var writes = map[string]Command{
	"set": set, "setex": setEx, "psetex": setEx, "setnx": setNX, "getset": getSet, "getdel": getDel, "getex": getEx,
	"mset": mset, "msetnx": msetNX, "del": del, "unlink": del, "append": appendTo, "setrange": setRange,
	"incr": incr, "decr": incr, "incrby": incr, "decrby": incr, "incrbyfloat": incrFloat,
	"expire": expire, "pexpire": expire, "expireat": expire, "pexpireat": expire, "persist": persist,
	"eval": eval, "evalsha": eval, "fr.cas": compareAndSet,
	"fr.setv": versionLater, "fr.delv": versionLater,
}

// Lookup returns the command of a name in small letters, and whether it writes; nil if this package
// has none of that name.
func Lookup(name string) (run Command, writing bool) {
	if run = reads[name]; run != nil {
		return run, false
	}
	run = writes[name]
	return run, run != nil
}
