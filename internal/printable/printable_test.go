package printable_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/internal/printable"
)

func TestControlCharactersAreReplaced(t *testing.T) {
	assert.Equal(t, "?[31mred?", printable.Text("\x1b[31mred\n"))
	assert.Equal(t, "a\n\tb?", printable.Lines("a\r\n\tb\r"))
	assert.Equal(t, "größer 名前", printable.Text("größer 名前"))
}

func TestListLimitsTheNumberOfNames(t *testing.T) {
	assert.Empty(t, printable.List(nil, 2))
	assert.Equal(t, "a, b", printable.List([]string{"a", "b"}, 2))
	assert.Equal(t, "a, b and 2 more", printable.List([]string{"a", "b", "c", "d"}, 2))
}

func TestAndOthersCountsTheOthers(t *testing.T) {
	assert.Equal(t, "a waits", printable.AndOthers("a waits", 1, "node"))
	assert.Equal(t, "a waits (and 1 other node)", printable.AndOthers("a waits", 2, "node"))
	assert.Equal(t, "a waits (and 2 other nodes)", printable.AndOthers("a waits", 3, "node"))
}

func TestCountAddsThePluralEnding(t *testing.T) {
	assert.Equal(t, "1 Job", printable.Count(1, "Job"))
	assert.Equal(t, "0 Jobs", printable.Count(0, "Job"))
	assert.Equal(t, "2 Jobs", printable.Count(2, "Job"))
}
