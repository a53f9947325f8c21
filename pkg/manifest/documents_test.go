package manifest_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// pieces are valid and invalid parts of document streams.
var pieces = []string{
	object("a"), object("b"), "x: |\n  text", "x: |+\n  text\n\n", "x: >\n  text\n  more", "x: |-\n  text\n", "x: |\n  one\n  ---\n  two\n",
	`{"apiVersion":"v1","kind":"A","metadata":{"name":"c"}}`, "{apiVersion: v1, kind: A, metadata: {name: d}}", "{", "}", "null", "~",
	"---", "---\n", "---\r\n", "--- \n", "---\t\n", "--- # comment\n", "---# comment\n", "---\u00a0\n", "---x: y\n", "--- x\n", "----\n", " ---\n",
	"\n", "\r\n", "\r", "\r\r\n", "\ufeff", "# comment\n", "# comment\r", "# caf\u00e9\u2028a: b\n", " ", "\t", "\u0085", "\u00a0", "...\n", "...", "%YAML 1.1\n",
	"a: 'b\n\nc'\n", "- a\n", "a:\n", "  b: c\n", strings.Repeat("#", 4095), strings.Repeat("#", 5000),
}

// readDocuments returns the documents as the reader of k8s.io/apimachinery splits them. A buffer as large as the stream avoids the reader's
// only bug, see TestDocumentsKeepALastLineOfBufferSize.
func readDocuments(data []byte) ([]string, error) {
	out := []string{}
	reader := utilyaml.NewYAMLReader(bufio.NewReaderSize(bytes.NewReader(data), len(data)+1))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, string(text))
	}
}

func checkDocuments(t *testing.T, data []byte) {
	t.Helper()
	want, wantErr := readDocuments(data)
	got, err := manifest.Documents(data)
	require.Equal(t, wantErr == nil, err == nil, "%q: the reader returns error %v, documents returns %v", data, wantErr, err)
	if wantErr != nil && len(got) == len(want)+1 {
		got = got[:len(want)] // the reader drops the document before an invalid separator
	}
	require.Equal(t, want, got, "%q", data)
}

// forStreams calls check with every pair of pieces, and with long random sequences of them.
func forStreams(check func(data []byte)) {
	for _, first := range pieces {
		for _, second := range pieces {
			check([]byte(first + second))
			check([]byte(object("z") + first + second))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var b strings.Builder
		for range 1 + random.IntN(8) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		check([]byte(b.String()))
	}
}

//threat:kubectl-original-reads
func TestDocumentsMatchTheReader(t *testing.T) {
	forStreams(func(data []byte) { checkDocuments(t, data) })
}

func TestDocumentsKeepALastLineOfBufferSize(t *testing.T) {
	last := "x: " + strings.Repeat("y", 4096-3)
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader("a: b\n" + last)))
	text, err := reader.Read()
	require.NoError(t, err)
	require.Equal(t, "a: b\n", string(text), "the reader loses the line")
	got, err := manifest.Documents([]byte("a: b\n" + last))
	require.NoError(t, err)
	assert.Equal(t, []string{"a: b\n" + last + "\n"}, got)
}

func TestDocumentsCopyNothing(t *testing.T) {
	data := []byte(object("a") + "---\n" + object("b"))
	allocations := testing.AllocsPerRun(10, func() { _, _ = manifest.Documents(data) })
	assert.Less(t, allocations, 8.0) // the test itself allocates these for its list of texts
}

//threat:kubectl-original-reads
func FuzzDocuments(f *testing.F) {
	for _, piece := range pieces {
		f.Add([]byte(object("a") + piece + object("b")))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkDocuments(t, data) })
}

// rawDocument keeps the JSON that the decoder of k8s.io/apimachinery produces for a document.
type rawDocument []byte

func (r *rawDocument) UnmarshalJSON(data []byte) error {
	*r = slices.Clone(data)
	return nil
}

// decodeAll decodes a file with the original's decoder of manifests.
func decodeAll(data []byte) ([]string, error) {
	var out []string
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 1024)
	for {
		var raw rawDocument
		switch err := decoder.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		}
		if text := bytes.TrimSpace(raw); len(text) > 0 && string(text) != "null" {
			out = append(out, string(text))
		}
	}
}

// checkDecoded compares the JSON of each document, which is the input of the payload hash, with the original decoder's. Parse may reject
// documents that the decoder accepts, see docs/user/openshift.md.
func checkDecoded(t *testing.T, data []byte) (accepted bool) {
	t.Helper()
	if last := data[bytes.LastIndexByte(data, '\n')+1:]; len(last) > 0 && len(last)%4096 == 0 {
		return false
	}
	all, err := manifest.Parse(file, data, manifest.Limits{})
	if err != nil {
		return false
	}
	want, err := decodeAll(data)
	require.NoError(t, err, "%q", data)
	got := []string{}
	for _, m := range all {
		got = append(got, string(m.Raw))
	}
	require.Equal(t, withoutLists(want), got, "%q", data)
	return true
}

// withoutLists removes lists, because Parse replaces them with their items.
func withoutLists(documents []string) []string {
	out := []string{}
	for _, text := range documents {
		var list struct {
			Kind  string `json:"kind"`
			Items []any  `json:"items"`
		}
		if json.Unmarshal([]byte(text), &list) != nil || !strings.HasSuffix(list.Kind, "List") || list.Items == nil {
			out = append(out, text)
		}
	}
	return out
}

//threat:kubectl-original-reads
func TestParseDecodesLikeTheOriginal(t *testing.T) {
	accepted := 0
	forStreams(func(data []byte) {
		if checkDecoded(t, data) {
			accepted++
		}
	})
	assert.Greater(t, accepted, 1000)
}

//threat:kubectl-original-reads
func FuzzParseDecodesAsTheOriginal(f *testing.F) {
	for _, piece := range pieces {
		f.Add([]byte(object("a") + piece + object("b")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !bytes.Contains(data, []byte("items")) {
			checkDecoded(t, data)
		}
	})
}
