package main

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const source = `package a

// TestBombs unpacks bombs.
//
//threat:bombs a gzip bomb
//threat:bombs a zstd bomb, in two frames
//threat:memory
func TestBombs() {}

func helper() {} //threat:bombs
`

func TestFillWritesTheTestsOfEachRow(t *testing.T) {
	tests, err := find(fstest.MapFS{
		"pkg/b/b_test.go":       {Data: []byte("package b\n\n//threat:memory\nfunc FuzzB() {}\n")},
		"pkg/a/a_test.go":       {Data: []byte(source)},
		"pkg/a/a.go":            {Data: []byte("package a\n\n//threat:memory\nfunc Test() {}\n")},
		".cache/old/a_test.go":  {Data: []byte(source)},
		"pkg/a/silent_test.go":  {Data: []byte("package a\n")},
		"pkg/a/testdata/x.yaml": {Data: []byte("//threat:memory")},
	})
	require.NoError(t, err)
	page := "| threat | what happens | test |\n|---|---|---|\n" +
		"| bombs <!-- threat:bombs --> | stopped | old |\n| much memory <!-- threat:memory --> | `a|b` | |\n| no id | x | kept |\n"
	got, err := fill(page, tests)
	require.NoError(t, err)
	assert.Equal(t, "| threat | what happens | test |\n|---|---|---|\n"+
		"| bombs <!-- threat:bombs --> | stopped | `pkg/a.TestBombs/a gzip bomb`, `pkg/a.TestBombs/a zstd bomb, in two frames` |\n"+
		"| much memory <!-- threat:memory --> | `a|b` | `pkg/a.TestBombs`, `pkg/b.FuzzB` |\n| no id | x | kept |\n", got)
	again, err := fill(got, tests)
	require.NoError(t, err)
	assert.Equal(t, got, again)
}

func TestFillReportsMismatchedIDs(t *testing.T) {
	row := "| bombs <!-- threat:bombs --> | stopped | |\n"
	bombs := test{threat: "bombs", name: "pkg/a.TestBombs", file: "pkg/a/a_test.go", line: 3}
	for _, tt := range []struct {
		name, page string
		tests      []test
		want       string
	}{
		{"a row without a test", row, nil, "row bombs has no test: write //threat:bombs above a test"},
		{"a directive without a row", "", []test{bombs}, "pkg/a/a_test.go:3: no row has the ID bombs"},
		{"two rows with the same ID", row + row, []test{bombs}, "two rows have the ID bombs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := fill(tt.page, tt.tests)
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestFindRejectsInvalidSource(t *testing.T) {
	_, err := find(fstest.MapFS{"a_test.go": {Data: []byte("//threat:bombs\nfunc {")}})
	require.Error(t, err)
}
