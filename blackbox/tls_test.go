package blackbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// certificate writes a self-signed certificate for loopback.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	cert, _ := x509.ParseCertificate(der)
	pool.AddCert(cert)
	return certFile, keyFile, pool
}

// With a certificate and a password, clients and nodes speak TLS and log in.
func TestTLS(t *testing.T) {
	cert, key, pool := certificate(t)
	p := run(t, 2, "--store", "memory:", "--password", "secret", "--tls-cert", cert, "--tls-key", key)
	for i, addr := range p.addrs {
		c := redis.NewClient(&redis.Options{Addr: addr, Password: "secret", TLSConfig: &tls.Config{RootCAs: pool}})
		for j := range 20 { // half of them are the other node's
			k := fmt.Sprintf("%c%d", 'A'+j*3%58, i)
			if err := c.Set(t.Context(), k, "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			if v, err := c.Get(t.Context(), k).Result(); v != "v" || err != nil {
				t.Fatal(v, err)
			}
		}
		c.Close()
	}
	plain := redis.NewClient(&redis.Options{Addr: p.addrs[0], Password: "secret", MaxRetries: -1})
	defer plain.Close()
	if err := plain.Ping(t.Context()).Err(); err == nil {
		t.Error("a plain connection was served")
	}
}
