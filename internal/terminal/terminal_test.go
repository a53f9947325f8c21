package terminal

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSupportsUTF8ReadsTheLocale(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"reads LANG", map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{"accepts the other spelling of UTF-8", map[string]string{"LANG": "C.utf8"}, true},
		{"prefers LC_ALL", map[string]string{"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, false},
		{"assumes ASCII without a locale", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, SupportsUTF8(func(name string) string { return c.env[name] }))
		})
	}
}
