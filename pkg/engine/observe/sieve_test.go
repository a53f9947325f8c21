package observe

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// frame encodes an event like the API server.
func frame(t testing.TB, kind, namespace, name string, finalizers ...string) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers}}
	m.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	var object bytes.Buffer
	require.NoError(t, protobuf.NewSerializer(scheme, scheme).Encode(m, &object))
	event, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object.Bytes()}}).Marshal()
	require.NoError(t, err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

//threat:tenant-labels-many
func TestSieveDropsForeignObjects(t *testing.T) {
	large := strings.Repeat("f", 100_000)
	kept := bytes.Join([][]byte{
		frame(t, "ADDED", "ns", "ours"), frame(t, "BOOKMARK", "", ""), frame(t, "MODIFIED", "ns", "ours", large), frame(t, "ERROR", "ns", "theirs"),
	}, nil)
	sent := bytes.Join([][]byte{
		frame(t, "ADDED", "ns", "theirs", large), kept[:len(frame(t, "ADDED", "ns", "ours"))], frame(t, "DELETED", "ns", "theirs"),
		kept[len(frame(t, "ADDED", "ns", "ours")):], frame(t, "MODIFIED", "ns", "theirs", large),
	}, nil)
	drop := unwanted(func(namespace, name string) bool { return namespace == "ns" && name == "theirs" })
	for name, reader := range map[string]io.Reader{
		"in one read": bytes.NewReader(sent), "byte by byte": iotest.OneByteReader(bytes.NewReader(sent)), "in halves": iotest.HalfReader(bytes.NewReader(sent)),
	} {
		t.Run("it drops foreign objects "+name, func(t *testing.T) {
			got, err := io.ReadAll(&sieved{ReadCloser: io.NopCloser(reader), drop: drop})
			require.NoError(t, err)
			assert.Equal(t, kept, got)
		})
	}
	t.Run("it ends with a truncated stream", func(t *testing.T) {
		_, err := io.ReadAll(&sieved{ReadCloser: io.NopCloser(bytes.NewReader(sent[:50])), drop: drop})
		assert.Error(t, err)
	})
}

func TestSievePassesOtherResponsesUnchanged(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	ctx := WithSieve(t.Context(), func(string, string) bool { return true })
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	answer, err := Sieve(http.DefaultTransport).RoundTrip(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Equal(t, "{}", string(body))
}

// FuzzSieve sends arbitrary bytes. The sieve must pass on the events that it does not drop unchanged.
//
//threat:lists-watches-objects
func FuzzSieve(f *testing.F) {
	f.Add(frame(f, "ADDED", "ns", "ours"))
	f.Add(frame(f, "MODIFIED", "ns", "theirs", "x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, _ := io.ReadAll(&sieved{ReadCloser: io.NopCloser(bytes.NewReader(data)), drop: func(string, string) bool { return false }})
		assert.True(t, bytes.HasPrefix(data, got))
	})
}
