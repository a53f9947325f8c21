package report_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/engine/report"
)

func TestUnknownDeletionsAsJSON(t *testing.T) {
	for _, tt := range []struct {
		name    string
		unknown report.Unknown
		want    string
	}{
		{"it omits known deletions", report.Unknown{}, ""},
		{"it encodes pending deletions", report.Unknown{Pending: true}, `{"pending":true}`},
		{"it encodes the reason", report.Unknown{Reason: "ConfigMap ns/old is not checked"}, `{"reason":"ConfigMap ns/old is not checked"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, err := json.Marshal(report.Progress{UnknownDeletions: tt.unknown})
			require.NoError(t, err)
			var fields map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(data, &fields))
			assert.Equal(t, tt.want, string(fields["unknownDeletions"]))
			var back report.Progress
			require.NoError(t, json.Unmarshal(data, &back))
			assert.Equal(t, tt.unknown, back.UnknownDeletions)
		})
	}
}
