package layered

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// Redis returns a value cache in a Redis or Valkey, under keys that begin with prefix. The server
// may evict, expire and lose any of them.
func Redis(client rueidis.Client, prefix string) Values { return &redis{client, prefix} }

type redis struct {
	client rueidis.Client
	prefix string
}

func (r *redis) Get(ctx context.Context, key string) ([]byte, bool, error) {
	b, err := r.client.Do(ctx, r.client.B().Get().Key(r.prefix+key).Build()).AsBytes()
	if rueidis.IsRedisNil(err) {
		return nil, false, nil
	}
	return b, err == nil, err
}

// ifNewer stores an item unless the server has one of at least its version. It compares versions in
// halves, because Lua's comparison of strings depends on the server's locale and its numbers have
// 53 bits.
var ifNewer = rueidis.NewLuaScript(`local old = redis.call('GETRANGE', KEYS[1], 0, 11)
if #old == 12 and string.sub(old, 1, 3) == '\245fr' then
	local h, l = struct.unpack('>I4I4', string.sub(old, 5))
	local nh, nl = struct.unpack('>I4I4', string.sub(ARGV[1], 5, 12))
	if h > nh or h == nh and l >= nl then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

func (r *redis) Set(ctx context.Context, key string, item []byte, keep time.Duration) error {
	return ifNewer.Exec(ctx, r.client, []string{r.prefix + key}, []string{rueidis.BinaryString(item), strconv.FormatInt(max(1, keep.Milliseconds()), 10)}).Error()
}

// Remote returns a version service that asks freshet serve over the Redis protocol. A space that
// keeps versions only suits it best. Build the client with DisableCache.
func Remote(client rueidis.Client) Versions { return remote{client} }

type remote struct{ client rueidis.Client }

func (r remote) Version(ctx context.Context, key string) (uint64, bool, error) {
	a, err := r.client.Do(ctx, r.client.B().Arbitrary("FR.VERSION").Keys(key).Build()).ToArray()
	if err != nil || len(a) != 2 {
		return 0, false, errors.Join(err, shape(a, 2))
	}
	version, err := number(a[0])
	exists, err2 := a[1].AsInt64()
	return version, exists == 1, errors.Join(err, err2)
}

func (r remote) Load(ctx context.Context, key string) (Item, error) {
	a, err := r.client.Do(ctx, r.client.B().Arbitrary("FR.GETV").Keys(key).Build()).ToArray()
	if err != nil || len(a) != 3 {
		return Item{}, errors.Join(err, shape(a, 3))
	}
	var i Item
	if i.Version, err = number(a[0]); err != nil {
		return Item{}, err
	}
	if a[1].IsNil() {
		return i, nil
	}
	value, err := a[1].ToString()
	left, err2 := a[2].AsInt64()
	if i.Exists, i.Value = true, value; left > 0 {
		i.TTL = time.Duration(left) * time.Millisecond
	}
	return i, errors.Join(err, err2)
}

func (r remote) SetTTL(ctx context.Context, key, value string, ttl time.Duration) (uint64, error) {
	cmd := r.client.B().Arbitrary("FR.SETV").Keys(key).Args(value)
	if ttl > 0 {
		cmd = cmd.Args("PX", strconv.FormatInt(max(1, ttl.Milliseconds()), 10))
	}
	return wrote(r.client.Do(ctx, cmd.Build()))
}

func (r remote) Delete(ctx context.Context, key string) (uint64, error) {
	return wrote(r.client.Do(ctx, r.client.B().Arbitrary("FR.DELV").Keys(key).Build()))
}

func wrote(r rueidis.RedisResult) (uint64, error) {
	m, err := r.ToMessage()
	if err != nil {
		return 0, err
	}
	return number(m)
}

func number(m rueidis.RedisMessage) (uint64, error) {
	s, err := m.ToString()
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(s, 10, 63)
}

func shape(a []rueidis.RedisMessage, n int) error {
	if len(a) == n {
		return nil
	}
	return fmt.Errorf("layered: %d values where %d were expected: is this a freshet of another version?", len(a), n)
}
