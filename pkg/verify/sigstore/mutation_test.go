package sigstore_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

// mutants returns copies of a JSON value. In each copy, one value at any depth is removed or replaced.
func mutants(value any) []any {
	out := []any{nil, "", "AAAA", "x", float64(-1), 1e30, true, []any{}, []any{nil}, map[string]any{}}
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			without := changed(v, map[string]any{key: nil})
			out = append(out, without)
			for _, m := range mutants(field) {
				with := changed(v, map[string]any{key: 0})
				with[key] = m
				out = append(out, with)
			}
		}
	case []any:
		out = append(out, append(append([]any{}, v...), v...))
		for i, element := range v {
			for _, m := range mutants(element) {
				with := append([]any{}, v...)
				with[i] = m
				out = append(out, with)
			}
		}
	}
	return out
}

func parsedJSON(t *testing.T, data []byte) any {
	t.Helper()
	var value any
	require.NoError(t, json.Unmarshal(data, &value))
	return value
}

// TestDamagedSignaturesAreRejected checks that incomplete or altered bundles and log entries are rejected without a panic.
func TestDamagedSignaturesAreRejected(t *testing.T) {
	s := newSigstore(t)
	signer := ci(t, s)
	root := trustIn(t, s)
	key := publicKey(t, "team", newKey(t, "P-256"))
	key.Log = &root
	authority := sigstore.Authority{Name: "ci", TrustRoot: root, Identities: []sigstore.Identity{{IssuerRegexp: ".*", SubjectRegexp: ".*"}}}
	tried := 0
	refused := func(a release.Attachment) {
		tried++
		_, err := verifyKey(key, image(), a)
		require.Error(t, err)
		_, err = verifyAttached(t, authority, image(), a)
		assert.Error(t, err)
	}
	statement := []byte(statement(otherDigest, sigstore.SignPredicate))
	for _, form := range []sigstoretest.Form{{}, {Version: "0.1", Chain: true}} {
		bundle, err := s.Statement(signer, statement, form)
		require.NoError(t, err)
		message, err := s.Message(signer, statement, form)
		require.NoError(t, err)
		for _, a := range []release.Attachment{bundle, message} {
			for _, m := range mutants(parsedJSON(t, a.Payload)) {
				var err error
				a.Payload, err = json.Marshal(m)
				require.NoError(t, err)
				refused(a)
			}
		}
		for _, a := range []release.Attachment{bundle, message} {
			document := parsedJSON(t, a.Payload).(map[string]any)
			entry := document["verificationMaterial"].(map[string]any)["tlogEntries"].([]any)[0].(map[string]any)
			body, err := base64.StdEncoding.DecodeString(entry["canonicalizedBody"].(string))
			require.NoError(t, err)
			for _, m := range mutants(parsedJSON(t, body)) {
				changedBody, err := json.Marshal(m)
				require.NoError(t, err)
				entry["canonicalizedBody"] = changedBody
				a.Payload, err = json.Marshal(document)
				require.NoError(t, err)
				refused(a)
			}
		}
	}
	classic, err := s.Classic(signer, []byte(simpleSigning(otherDigest)), sigstoretest.Form{})
	require.NoError(t, err)
	for _, m := range mutants(parsedJSON(t, []byte(classic.Annotations[sigstore.LogAnnotation]))) {
		data, err := json.Marshal(m)
		require.NoError(t, err)
		refused(annotated(classic, sigstore.LogAnnotation, string(data)))
	}
	assert.Greater(t, tried, 1000, fmt.Sprint(tried))
}
