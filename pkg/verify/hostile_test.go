package verify_test

import (
	"bytes"
	"crypto"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// hostileVerify verifies, and holds the cost and the size of the answer against the bounds.
func hostileVerify(t *testing.T, v *verify.Verifier) error {
	t.Helper()
	var err error
	fixture.Bounded(t, func() { _, err = v.Verify(t.Context(), image()) })
	if err != nil {
		require.ErrorIs(t, err, verify.ErrUnverified)
		assert.Less(t, len(err.Error()), 16<<10)
		assert.NotContains(t, err.Error(), "\n")
	}
	return err
}

func TestHostileMessages(t *testing.T) {
	e, key := rsaKey(t, 2048)
	id := e.PrimaryKey.KeyId
	good := sign(t, e, claim(digest))
	wrong := packetOf(2, signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), issuerSubpacket(id), []byte("something else")))
	nested := good
	for range 100 {
		nested = compress(t, packet.CompressionZIP, nested)
	}
	uncompressed := good
	for range 100 {
		uncompressed = packetOf(8, append([]byte{0}, uncompressed...))
	}
	zeros := strings.Repeat("\x00", 32<<20)
	tiny := []byte{0xc0 | 11}
	for range 20_000 {
		tiny = append(tiny, 224, 'b') // One byte, and more to come.
	}
	fill := func(p []byte) []byte { return bytes.Repeat(p, verify.MaxSignatureSize/len(p)) }
	hugeNumber := bytes.Clone(wrong[:len(wrong)-258])
	hugeNumber = packetOf(2, append(hugeNumber[6:], append([]byte{0xff, 0xff}, bytes.Repeat([]byte{0xff}, 8192)...)...))

	for _, test := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"nested compression", nested, "compressed more than twice"},
		{"nested packets that are not compressed", uncompressed, "compressed more than twice"},
		{"a ZIP bomb", compress(t, packet.CompressionZIP, literal(t, zeros)), "decompresses to more than 131072 bytes"},
		{"a ZLIB bomb", compress(t, packet.CompressionZLIB, literal(t, zeros)), "decompresses to more than 131072 bytes"},
		{"two bombs that are small enough alone", append(compress(t, packet.CompressionZIP, packetOf(60, make([]byte, 100<<10))), compress(t, packet.CompressionZIP, packetOf(60, make([]byte, 100<<10)))...), "decompresses to more than 131072 bytes"},
		{"a message of a gigabyte by its own account", append([]byte{0xc0 | 11, 0xff, 0x40, 0, 0, 0}, "b"...), "reading OpenPGP message"},
		{"a signature of 4 gigabytes by its own account", []byte{0xc0 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 4}, "reading OpenPGP message"},
		{"a subpacket of 4 gigabytes by its own account", messageOf(append([]byte{4, 0, 1, 8, 0, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 2}, make([]byte, 20)...), "x"), "signature subpacket truncated"},
		{"version 6 subpackets of 4 gigabytes", messageOf([]byte{6, 0, 27, 8, 0xff, 0xff, 0xff, 0xff}, "x"), "reading version 6 signature"},
		{"data in pieces of one byte", tiny, "reading OpenPGP message"},
		{"nothing but markers", fill([]byte{0xca, 0}), "more than 100 packets"},
		{"nothing but one-pass packets", fill([]byte{0xc4, 0}), "more than 100 packets"},
		{"nothing but signatures", fill([]byte{0xc2, 1, 9}), "more than 16 signatures"},
		{"as many wrong signatures as can be over as much as can be", compress(t, packet.CompressionZIP, append(bytes.Repeat(wrong, 16), literal(t, strings.Repeat(" ", 100<<10))...)), "is not valid"},
		{"a huge number in a signature", append(hugeNumber, literalOf(claim(digest))...), "is not valid"},
		{"unknown versions", messageOf(append([]byte{200}, make([]byte, 200)...), "x"), "reading version 200 signature"},
		{"armor without end", []byte("-----BEGIN PGP MESSAGE-----\n\n" + strings.Repeat("A", verify.MaxSignatureSize/2)), "decoding armor"},
		{"armor with headers without end", []byte("-----BEGIN PGP MESSAGE-----\n" + strings.Repeat("A: b\n", 10_000)), "decoding armor"},
		{"a bit more than is allowed", make([]byte, verify.MaxSignatureSize+1), "larger than 51200 bytes"},
		{"a name in a notation that fills the status", messageOf(signV4(t, key, 0, crypto.SHA256, append(createdSubpacket(today), hugeNotation()...), issuerSubpacket(id), []byte("x")), "x"), "carries the critical notation"},
	} {
		t.Run("it survives "+test.name, func(t *testing.T) {
			policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", e)}}
			// Ten copies, and then one that is good: hostile signatures do not hide it.
			messages := [][]byte{}
			for range 10 {
				messages = append(messages, test.message)
			}
			err := hostileVerify(t, newVerifier(t, policy, verify.Sources{Local: []verify.Store{memory{name: "memory", messages: messages}}}))
			require.ErrorContains(t, err, test.want)
			require.NoError(t, hostileVerify(t, newVerifier(t, policy, verify.Sources{Local: []verify.Store{memory{name: "memory", messages: append(messages, good)}}})))
		})
	}
}

// hugeNotation is a critical notation with a name of 30,000 letters.
func hugeNotation() []byte {
	name := strings.Repeat("n", 30_000)
	body := append([]byte{0x80, 0, 0, 0, byte(len(name) >> 8), byte(len(name)), 0, 0}, name...)
	return append([]byte{0xff, 0, 0, byte((len(body) + 1) >> 8), byte(len(body) + 1), 20 | 0x80}, body...)
}

func TestHostileConfigMaps(t *testing.T) {
	e, key := rsaKey(t, 2048)
	wrong := packetOf(2, signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), issuerSubpacket(e.PrimaryKey.KeyId), []byte("something else")))
	bomb := compress(t, packet.CompressionZIP, literal(t, strings.Repeat("\x00", 1<<20)))
	costly := compress(t, packet.CompressionZIP, append(bytes.Repeat(wrong, 16), literal(t, strings.Repeat(" ", 100<<10))...))
	for _, test := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"signatures of others", sign(t, newEntity(t, "mallory"), claim(digest)), "more than 64 signatures, the rest is not looked at"},
		{"signatures that take time", costly, "more than 64 signatures, the rest is not looked at"},
		{"bombs", bomb, "more than 200 that are no signatures, the rest is not looked at"},
		{"noise", []byte("noise"), "more than 200 that are no signatures, the rest is not looked at"},
	} {
		t.Run("it survives a thousand "+test.name, func(t *testing.T) {
			data := verify.ConfigMapData{Namespace: "n", Name: "c", BinaryData: map[string][]byte{}}
			for n := range 1000 {
				data.BinaryData[verify.ConfigMapKey(digest, n)] = test.message
			}
			v := newVerifier(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", e)}},
				verify.Sources{Local: []verify.Store{verify.NewConfigMaps(listOf(data))}})
			require.ErrorContains(t, hostileVerify(t, v), test.want)
		})
	}
	t.Run("it stops in the middle when its time is over", func(t *testing.T) {
		policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", e)}}
		v := newVerifier(t, policy, verify.Sources{Local: []verify.Store{endless{bomb}}, StoreTimeout: time.Millisecond})
		require.ErrorContains(t, hostileVerify(t, v), "no answer within 1ms")
	})
}

func TestHostileServers(t *testing.T) {
	chunk := bytes.Repeat([]byte{0x90}, 64<<10)
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, n int)
		want   string
	}{
		{"a body without end", func(w http.ResponseWriter, _ *http.Request, _ int) {
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "signature-9: larger than 51200 bytes"},
		{"an error page without end", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.WriteHeader(http.StatusForbidden)
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "signature-9: the server answered 403 Forbidden"},
		{"a page that says nothing is there, without end", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.WriteHeader(http.StatusNotFound)
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "no signature found"},
		{"headers without end", func(w http.ResponseWriter, _ *http.Request, n int) {
			for i := range 12 << 10 {
				w.Header().Add("X-"+strconv.Itoa(i), strings.Repeat("h", 1<<10))
			}
			_, _ = fmt.Fprint(w, n)
		}, "server response headers exceeded"},
		{"redirects without end", func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, "stopped after 5 redirects"},
		{"a redirect to nowhere", func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, "gopher://"+strings.Repeat("x", 10_000), http.StatusFound)
		}, "unsupported protocol scheme"},
		{"bodies that break off", func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write(chunk[:100])
			panic(http.ErrAbortHandler)
		}, "signature-9: EOF"},
		{"what is no HTTP", func(w http.ResponseWriter, _ *http.Request, _ int) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = conn.Write(chunk)
				_ = conn.Close()
			}
		}, "transport connection broken"},
		{"a thousand signatures", func(w http.ResponseWriter, _ *http.Request, _ int) {
			_, _ = w.Write([]byte("noise"))
		}, "signature-9: reading OpenPGP message"},
	} {
		t.Run("it survives "+test.name, func(t *testing.T) {
			store, _ := impatient(t, serve(t, test.answer).URL+"/signatures")
			v := newVerifier(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))}},
				verify.Sources{Exclusive: []verify.Store{store}, StoreTimeout: 5 * time.Second})
			require.ErrorContains(t, hostileVerify(t, v), test.want)
		})
	}
}
