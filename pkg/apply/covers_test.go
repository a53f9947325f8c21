package apply

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCoversAllowsAdditionalFields(t *testing.T) {
	for _, tt := range []struct {
		name, have, want string
		yes              bool
	}{
		{"allows additional fields", `{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`, true},
		{"notices a different value", `{"a":{"b":1}}`, `{"a":{"b":2}}`, false},
		{"notices a missing field", `{"a":{}}`, `{"a":{"b":2}}`, false},
		{"compares the entries of lists", `{"a":[{"b":1,"c":2},"x"]}`, `{"a":[{"b":1},"x"]}`, true},
		{"notices a list of different length", `{"a":[1,2]}`, `{"a":[1]}`, false},
		{"notices a different kind of value", `{"a":[1]}`, `{"a":{"b":1}}`, false},
		{"treats null as any value", `{}`, `{"a":null}`, true},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.yes, covers(decodeJSON(t, tt.have), decodeJSON(t, tt.want)))
		})
	}
}

func decodeJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &object))
	return object
}
