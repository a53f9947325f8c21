// Command overlay prepares a smaller build. It writes an overlay for `go build -overlay`, in which templates of
// text/template call no methods. The Go linker can then drop every method that nothing calls: a fifth of the binary.
//
// The templates of this project see plain values, which have no methods. So programs built with and without the overlay
// behave alike.
//
//	go run ./hack/overlay FILE
//
// FILE is the JSON file for -overlay. The changed source lies beside it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is the changed file of the Go distribution, below its folder src.
const source = "text/template/exec.go"

// lookup is the only statement of the file that finds a method by a name that the linker does not know. The statement that
// replaces it keeps its variable in use.
const (
	lookup = `	if method := ptr.MethodByName(fieldName); method.IsValid() {
		return s.evalCall(dot, method, false, node, fieldName, args, final)
	}
`
	without = "	_ = ptr\n"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: overlay FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// write writes an overlay for the installed Go distribution. It fails if the distribution's source has another lookup.
func write(file string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("looking for the Go distribution: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src", filepath.FromSlash(source))
	data, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	text := string(data)
	if n := strings.Count(text, lookup); n != 1 {
		return fmt.Errorf("%s looks methods up in %d places instead of one: adapt hack/overlay to this version of Go", original, n)
	}
	file, err = filepath.Abs(file)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	changed := strings.TrimSuffix(file, filepath.Ext(file)) + ".go"
	if err := os.WriteFile(changed, []byte(strings.Replace(text, lookup, without, 1)), 0o644); err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return err
	}
	return os.WriteFile(file, overlay, 0o644)
}
