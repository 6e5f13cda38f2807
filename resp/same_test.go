package resp

import (
	"bufio"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// marker follows whatever is sent; its answer shows that the connection goes on.
const marker = "*2\r\n$4\r\nECHO\r\n$6\r\nmarker\r\n"

// exchange sends bytes and the marker, and returns all that comes back before
// the marker's answer, or before the end.
func exchange(t *testing.T, addr, in string) (out string, goesOn bool) {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(nc, in+marker); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(nc)
	for !strings.HasSuffix(out, "$6\r\nmarker\r\n") {
		b, err := r.ReadByte()
		if err != nil {
			return out, false
		}
		out += string(b)
	}
	return strings.TrimSuffix(out, "$6\r\nmarker\r\n"), true
}

// Requests in every form, right and wrong, as bytes.
var raw = []string{
	"PING\r\n", "PING\n", "ping  x \r\n", "\r\n", "\n", "*0\r\n", "*-1\r\n", "*-10\r\n", "PING 'a b'\r\n", `PING "\x41\n\r\t\b\a\"\\\q"` + "\r\n",
	`PING 'a\'b\x41'` + "\r\n", "PING \"\"\r\n", "PING \"open\r\n", "PING 'open\r\n", "PING \"a\"b\r\n", "PING 'a'b\r\n", "PING a\"b c\"\r\n", "PING x\"y\r\n",
	"*1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\nPING\r\n$0\r\n\r\n", "*2\r\n$4\r\nPING\r\n$5\r\n\r\n\x00\xff\n\r\n",
	"*x\r\n", "*\r\n", "*1x\r\n", "* 1\r\n", "*99999999999999999999\r\n", "*3000000000\r\n", "*01\r\n", "*+1\r\n", "*-0\r\n",
	"*1\r\nPING\r\n", "*1\r\n:4\r\nPING\r\n", "*1\r\n*1\r\n", "*1\r\n\r\n", "*1\r\n$x\r\n", "*1\r\n$\r\n", "*1\r\n$-1\r\n", "*1\r\n$-2\r\n", "*1\r\n$04\r\nPING\r\n", "*1\r\n$4x\r\nPING\r\n",
	"*1\r\n$999999999999\r\n", "*1\r\n$18446744073709551616\r\n", "*2\r\n$4\r\nPING\r\n+x\r\n", "*1\r\n\xff4\r\nPING\r\n",
	"*2\r\n$4\r\nPING\r\n$1\r\nabc\r\n", "*1\r\n$4\r\nPINGxx", "GET\r\n", "GET a b c\r\n", "NOSUCH\r\n", "NOSUCH a 'b c' d\r\n", "SELECT x\r\n", "SELECT -1\r\n",
	"HELLO x\r\n", "HELLO 1\r\n", "HELLO 4\r\n", "HELLO 3 AUTH x\r\n", "HELLO 3 SETNAME\r\n", "HELLO 2 NOSUCH\r\n", "HELLO 3 SETNAME \"a b\"\r\n", "HELLO 3 AUTH nobody x\r\n",
	"AUTH\r\n", "AUTH x\r\n", "AUTH default x\r\n", "AUTH a b c\r\n", "AUTH nobody x\r\n", "ECHO\r\n", "ECHO a b\r\n", "PING a b\r\n", "QUIT\r\n", "QUIT x\r\n", "RESET\r\n", "RESET x\r\n",
	"CLIENT\r\n", "CLIENT NOSUCH\r\n", "CLIENT SETNAME\r\n", "CLIENT SETNAME \"a b\"\r\n", "CLIENT SETNAME x\r\nCLIENT GETNAME\r\n", "CLIENT GETNAME x\r\n", "CLIENT GETNAME\r\n", "CLIENT ID x\r\n",
	"CLIENT KILL\r\n", "CLIENT KILL 1.2.3.4:5\r\n", "CLIENT KILL ID x\r\n", "CLIENT KILL ID 999999999\r\n", "CLIENT KILL ADDR\r\n", "CLIENT KILL ADDR 1.2.3.4:5 NOSUCH x\r\n", "CLIENT LIST x\r\n", "CLIENT LIST ID\r\n", "CLIENT LIST ID x\r\n", "CLIENT LIST TYPE nosuch\r\n",
	"CLIENT NO-EVICT\r\n", "CLIENT NO-EVICT x\r\n", "CLIENT NO-EVICT on\r\n", "CLIENT REPLY\r\n", "CLIENT REPLY x\r\n", "CLIENT REPLY ON\r\n", "CLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\n", "CLIENT REPLY SKIP\r\nPING\r\nPING\r\n", "CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING\r\nPING\r\n", "CLIENT REPLY SKIP\r\nNOSUCH\r\nPING\r\n", "CLIENT REPLY OFF\r\nNOSUCH\r\nCLIENT REPLY ON\r\n", "CLIENT GETREDIR\r\n", "CLIENT UNPAUSE\r\n",
	"COMMAND COUNT x\r\n", "COMMAND NOSUCH\r\n", "COMMAND GETKEYS\r\n", "COMMAND GETKEYS GET a\r\n", "COMMAND GETKEYS MSET a 1 b 2\r\n", "COMMAND GETKEYS PING\r\n", "COMMAND GETKEYS GET\r\n", "COMMAND GETKEYS NOSUCH a\r\n", "COMMAND INFO nosuch\r\n", "COMMAND DOCS nosuch\r\n",
	"EXEC\r\n", "DISCARD\r\n", "MULTI x\r\n", "MULTI\r\nMULTI\r\nEXEC\r\n", "MULTI\r\nEXEC\r\n", "MULTI\r\nDISCARD\r\nEXEC\r\n", "MULTI\r\nNOSUCH\r\nPING\r\nEXEC\r\n", "MULTI\r\nGET\r\nEXEC\r\n", "MULTI\r\nRESET\r\nEXEC\r\n", "MULTI\r\nQUIT\r\n", "MULTI\r\nWATCH a\r\nEXEC\r\n", "MULTI\r\nCLIENT REPLY OFF\r\nDISCARD\r\n",
	"GET same:none\r\nMULTI\r\nGET same:none\r\nEXEC\r\nGET same:none\r\n", "MULTI x\r\nEXEC\r\n", "MULTI\r\nEXEC x\r\nEXEC\r\n",
}

// unlike Redis, and meant, by what is sent.
var unlike = map[string]string{
	"MULTI\r\nEXEC x\r\nEXEC\r\n": "EXEC with arguments does not end the transaction; EXEC then says that it failed",
}

// The words of Redis for whatever is said, right or wrong, and an end of the
// connection where Redis ends it.
func TestSameWordsAsRedis(t *testing.T) {
	redis := os.Getenv("FRESHET_TEST_REDIS")
	if redis == "" && os.Getenv("FRESHET_TEST_REQUIRE") != "" {
		t.Fatal("FRESHET_TEST_REDIS is not set, and tests that need it may not be skipped")
	}
	if redis == "" {
		t.Skip("no real redis-server to compare with: set FRESHET_TEST_REDIS=HOST:PORT, or run make test")
	}
	s := serve(t, Options{})
	for _, in := range raw {
		want, on := exchange(t, redis, in)
		got, goesOn := exchange(t, s.addr, in)
		if _, meant := unlike[in]; !meant && (want != got || on != goesOn) {
			t.Errorf("%q\n Redis   %q, goes on: %v\n freshet %q, goes on: %v", in, want, on, got, goesOn)
		}
	}
}
