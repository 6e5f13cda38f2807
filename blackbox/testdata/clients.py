"""Everyday locks, caches and limiters of Python, against the freshet at each address
of the command line. Prints one line for each part, and ends with 1 if one fails."""

import sys
import threading
import traceback

import redis
from redis.exceptions import LockError, LockNotOwnedError, ResponseError

ADDRS = sys.argv[1:]


def client(i=0, **options):
    host, port = ADDRS[i % len(ADDRS)].rsplit(":", 1)
    return redis.Redis(host=host, port=int(port), **options)


def url(i=0, scheme="redis"):
    return "%s://%s/0" % (scheme, ADDRS[i % len(ADDRS)])


def raises(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError("%s was not raised" % kind)


def redis_py_lock():
    a = client(0).lock("py:lock", timeout=30)
    b = client(1).lock("py:lock", timeout=30, blocking=False)
    assert a.acquire() and a.locked() and a.owned()
    assert not b.acquire()
    assert a.extend(30) and client(1).pttl("py:lock") > 30_000
    assert a.extend(20, replace_ttl=True) and 0 < client(1).pttl("py:lock") <= 20_000
    assert a.reacquire() and 20_000 < client(1).pttl("py:lock") <= 30_000
    for call in [lambda: b.extend(5), b.reacquire, b.release]:
        b.local.token = b"another's"
        raises(LockNotOwnedError, call)
    a.release()
    raises(LockError, a.release)
    b.local.token = None
    assert b.acquire()
    b.release()
    assert not client().exists("py:lock")


def redis_py_lock_excludes():
    value = [0]

    def add(i):
        for _ in range(10):
            with client(i).lock("py:counter", timeout=60, sleep=0.002):
                n = value[0]
                threading.Event().wait(0.0001)  # so that another would be seen
                value[0] = n + 1

    all_ = [threading.Thread(target=add, args=(i,)) for i in range(4)]
    [t.start() for t in all_]
    [t.join() for t in all_]
    assert value[0] == 40, value


def redlock_py():
    from redlock import Redlock

    locks = Redlock([{"host": ADDRS[0].rsplit(":", 1)[0], "port": int(ADDRS[0].rsplit(":", 1)[1])}], retry_count=1)
    held = locks.lock("redlock", 60_000)
    assert held
    assert not locks.lock("redlock", 60_000)
    locks.unlock(held)
    assert locks.lock("redlock", 60_000)


def pottery_redlock():
    from pottery import Redlock

    lock = Redlock(key="pottery", masters={client()}, auto_release_time=60)
    assert lock.acquire() and lock.locked()
    lock.extend()
    lock.release()
    assert not lock.locked()


def django():
    from django.conf import settings

    settings.configure(CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url()}})
    from django.core.cache import cache

    cache.set("d:a", {"x": [1, 2]}, timeout=60)
    assert cache.get("d:a") == {"x": [1, 2]} and 0 < cache.ttl("d:a") <= 60
    assert cache.add("d:n", 5, timeout=60) and not cache.add("d:n", 6)
    assert cache.incr("d:n") == 6 and cache.incr("d:n", 10) == 16 and cache.decr("d:n", 1) == 15
    assert 0 < cache.ttl("d:n") <= 60
    raises(ValueError, lambda: cache.incr("d:none"))
    assert cache.incr("d:fresh", ignore_key_check=True) == 1
    assert cache.get_many(["d:a", "d:n", "d:none"]).keys() == {"d:a", "d:n"}
    assert cache.touch("d:n", 100) and cache.ttl("d:n") > 60
    with cache.lock("d:lock", timeout=60):
        assert not cache.lock("d:lock", timeout=60, blocking=False).acquire()
    with cache.lock("d:lock", timeout=60):
        pass
    assert cache.delete_pattern("d:*") >= 3


def dogpile():
    from dogpile.cache import make_region

    def region(i):
        return make_region().configure("dogpile.cache.redis", expiration_time=3600, arguments={"url": url(i), "distributed_lock": True, "redis_expiration_time": 7200, "lock_timeout": 60, "lock_sleep": 0.002})

    made = []

    def make():
        made.append(1)
        return "value"

    all_ = [threading.Thread(target=lambda i=i: region(i).get_or_create("dp:k", make)) for i in range(8)]
    [t.start() for t in all_]
    [t.join() for t in all_]
    assert len(made) == 1, made
    r = region(0)
    assert r.get("dp:k") == "value"
    r.delete("dp:k")
    assert r.get_or_create("dp:k", make) == "value" and len(made) == 2
    mutex = r.backend.get_mutex("dp:m")
    assert mutex.acquire() and not region(1).backend.get_mutex("dp:m").acquire(False)
    mutex.release()


def limits_():
    from limits import parse, storage, strategies

    stores = [storage.storage_from_string(url(i)) for i in range(len(ADDRS))]
    ways = [strategies.FixedWindowRateLimiter(s) for s in stores]
    ten = parse("10/hour")
    hits = [ways[i % len(ways)].hit(ten, "user") for i in range(13)]
    assert hits == [True] * 10 + [False] * 3, hits
    reset, left = ways[0].get_window_stats(ten, "user")
    assert left == 0 and reset > 0
    assert not ways[0].test(ten, "user")
    ways[0].clear(ten, "user")
    assert ways[0].test(ten, "user")
    assert ways[0].hit(ten, "other", cost=7) and not ways[-1].hit(ten, "other", cost=7)
    moving = strategies.MovingWindowRateLimiter(stores[0])
    e = raises(ResponseError, lambda: moving.hit(ten, "m"))
    assert "there is no Lua here" in str(e), e


def flask_limiter():
    from flask import Flask
    from flask_limiter import Limiter

    app = Flask("trial")
    limiter = Limiter(lambda: "somebody", app=app, storage_uri=url(), strategy="fixed-window")

    @app.route("/")
    @limiter.limit("3/hour")
    def home():
        return "ok"

    codes = [app.test_client().get("/").status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429], codes


def unsupported():
    e = raises(ResponseError, lambda: client().hset("h", "f", "v"))
    assert "not supported" in str(e) and "SET" in str(e), e


failed = False
for part in [redis_py_lock, redis_py_lock_excludes, redlock_py, pottery_redlock, django, dogpile, limits_, flask_limiter, unsupported]:
    try:
        part()
        print("ok", part.__name__)
    except Exception:
        failed = True
        print("FAILED", part.__name__)
        traceback.print_exc(file=sys.stdout)
sys.exit(failed)
