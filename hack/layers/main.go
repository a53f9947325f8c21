// Command layers draws the layers of the module's packages into a page, based on their imports. Each line of the drawing
// imports only lines below it. The drawing is between the comments "<!-- layers: generated … -->" and "<!-- /layers -->".
//
// There are two drawings: one of the folders below pkg, and one of the packages.
//
// The command fails if a package imports a package whose folder contains it, because the shared part belongs below both.
// It also fails if folders import each other in a cycle, or if a package imports too many packages.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

//go:generate go run . ../../docs/architecture.md

const (
	begin = "<!-- layers: generated from the imports by make generate -->\n"
	end   = "<!-- /layers -->\n"
)

// pkg is a package of the module. Its name lacks the module's path.
type pkg struct {
	name    string
	imports []string
}

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: layers PAGE\n\nDraws the layers of the module's packages into PAGE.")
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(page string) error {
	packages, err := list()
	if err != nil {
		return err
	}
	if err := check(packages); err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err = insert(text, draw(layers(folders(packages)))+"\nThe same for each package:\n\n"+draw(layers(packages)))
	if err != nil {
		return fmt.Errorf("drawing into %s: %w", page, err)
	}
	return os.WriteFile(page, text, 0o644)
}

// list returns the shipped packages with their imports of this module.
func list() ([]pkg, error) {
	listing := exec.Command("go", "list", "-json=ImportPath,Imports,Module", "./cmd/...", "./pkg/...", "./internal/...")
	listing.Dir, listing.Stderr = "../..", os.Stderr
	out, err := listing.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	return parse(bytes.NewReader(out))
}

func parse(listing io.Reader) ([]pkg, error) {
	var packages []pkg
	for d := json.NewDecoder(listing); ; {
		var p struct {
			ImportPath string
			Imports    []string
			Module     struct{ Path string }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("parsing the list of packages: %w", err)
		}
		prefix := p.Module.Path + "/"
		found := pkg{name: strings.TrimPrefix(p.ImportPath, prefix)}
		for _, i := range p.Imports {
			if own, ok := strings.CutPrefix(i, prefix); ok {
				found.imports = append(found.imports, own)
			}
		}
		packages = append(packages, found)
	}
}

// maxImports is the number of packages of the module that a package may import. A package that needs more has more than one idea.
// maxWiring is the number for the wiring.
const (
	maxImports = 14
	maxWiring  = 30
)

// isWiring reports whether a package connects others to a process or a command.
func isWiring(name string) bool {
	switch name {
	case "pkg/operator", "pkg/operator/engines", "pkg/clusterversion", "pkg/cli", "pkg/node/cli":
		return true
	}
	return strings.HasPrefix(name, "pkg/cli/")
}

// check returns an error that names each package with too many imports, each import of an enclosing folder, and the first cycle of folders
// that import each other.
func check(packages []pkg) error {
	var errs []error
	for _, p := range packages {
		limit := maxImports
		if isWiring(p.name) {
			limit = maxWiring
		}
		if len(p.imports) > limit {
			errs = append(errs, fmt.Errorf("%s imports %d packages of this module, and may import %d: divide it by subject", p.name, len(p.imports), limit))
		}
		for _, i := range p.imports {
			if strings.HasPrefix(p.name, i+"/") {
				errs = append(errs, fmt.Errorf("%s imports its parent %s: move the shared code to a package below both", p.name, i))
			}
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	if found := cycle(folders(packages)); found != nil {
		errs = append(errs, fmt.Errorf("folders import each other: %s", strings.Join(found, " → ")))
	}
	return errors.Join(errs...)
}

// cycle returns the first cycle of imports, which ends with the name that it begins with; nil if there is none.
func cycle(packages []pkg) []string {
	imports := map[string][]string{}
	for _, p := range packages {
		imports[p.name] = p.imports
	}
	done := map[string]bool{}
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		if i := slices.Index(path, name); i >= 0 {
			return append(slices.Clone(path[i:]), name)
		}
		path = append(path, name)
		for _, i := range imports[name] {
			if done[i] {
				continue
			}
			if found := visit(i); found != nil {
				return found
			}
		}
		path, done[name] = path[:len(path)-1], true
		return nil
	}
	for _, p := range packages {
		if !done[p.name] {
			if found := visit(p.name); found != nil {
				return found
			}
		}
	}
	return nil
}

// folders returns the folders below pkg and internal as if each were one package.
func folders(packages []pkg) []pkg {
	var all []pkg
	index := map[string]int{}
	for _, p := range packages {
		name := folder(p.name)
		if _, ok := index[name]; !ok {
			index[name] = len(all)
			all = append(all, pkg{name: name})
		}
		f := &all[index[name]]
		for _, i := range p.imports {
			if other := folder(i); other != name && !slices.Contains(f.imports, other) {
				f.imports = append(f.imports, other)
			}
		}
	}
	return all
}

// split is a folder whose packages belong to several layers: views import the pure packages of the node stage, and its processes import a
// package of the command line.
const split = "pkg/node"

// folder returns the folder of a package: internal, or the first two elements of its path, such as pkg/engine. Each folder in the split one
// counts separately.
func folder(name string) string {
	parts := strings.Split(name, "/")
	depth := 2
	switch {
	case parts[0] == "internal":
		depth = 1
	case strings.HasPrefix(name, split+"/"):
		depth = 3
	}
	return strings.Join(parts[:min(depth, len(parts))], "/")
}

// layers returns the packages of each layer, the highest layer first. A package is one layer above the highest layer that it imports.
func layers(packages []pkg) [][]string {
	byName := map[string]pkg{}
	for _, p := range packages {
		byName[p.name] = p
	}
	heights := map[string]int{}
	var height func(name string) int
	height = func(name string) int {
		if h, ok := heights[name]; ok {
			return h
		}
		h := 0
		for _, i := range byName[name].imports {
			h = max(h, height(i)+1)
		}
		heights[name] = h
		return h
	}
	var all [][]string
	for _, p := range packages {
		for h := height(p.name); h >= len(all); {
			all = append(all, nil)
		}
		all[heights[p.name]] = append(all[heights[p.name]], p.name)
	}
	slices.Reverse(all)
	return all
}

// maxLine is the length after which a line of the drawing continues on the next one.
const maxLine = 110

// draw prints layers. It groups the packages of one folder, such as engine/{gate,observe}.
func draw(layers [][]string) string {
	var out strings.Builder
	for n, names := range layers {
		slices.Sort(names)
		folders := map[string][]string{}
		var order []string
		for _, name := range names {
			dir := path.Dir(name)
			if folders[dir] == nil {
				order = append(order, dir)
			}
			folders[dir] = append(folders[dir], path.Base(name))
		}
		line := fmt.Sprintf("    %2d ", len(layers)-1-n)
		for _, dir := range order {
			entry := strings.Join(folders[dir], ",")
			if len(folders[dir]) > 1 {
				entry = "{" + entry + "}"
			}
			switch dir {
			case ".":
			case "pkg":
				entry = strings.Join(folders[dir], "  ")
			default:
				entry = strings.TrimPrefix(dir, "pkg/") + "/" + entry
			}
			if len(line)+2+len(entry) > maxLine {
				out.WriteString(strings.TrimRight(line, " ") + "\n")
				line = strings.Repeat(" ", 7)
			}
			line += " " + entry + " "
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

// insert puts a drawing between the markers of a page.
func insert(page []byte, drawing string) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return nil, fmt.Errorf("the page must contain %q, followed by %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return slices.Concat(before, []byte(begin+"\n"+drawing+"\n"+end), after), nil
}
