package manifest

import (
	"errors"
	"path"
	"regexp"
	"strconv"

	yamlv2 "go.yaml.in/yaml/v2"
)

// RepeatedKey is a key that occurs more than once in a map of a YAML document. Its last occurrence wins.
type RepeatedKey struct {
	// Document is the position of the document in the file, from 1.
	Document int
	// Line is the line of the repetition.
	Line int
	Key  string
}

// Examined is the content of a file with its errors.
type Examined struct {
	// Manifests are the valid objects.
	Manifests []*Manifest
	// Errors are the errors that Parse would join, in the order of the file.
	Errors []*Error
	// Repeated are the repeated keys.
	Repeated []RepeatedKey
	// Lines are the first lines of the documents: Lines[m.Document-1].
	Lines []int
}

// Examine reads a file as Parse does with the default limits, but continues after errors and returns positions. It is for tools that inspect releases. To apply a
// release, use Parse.
func Examine(file string, data []byte) Examined {
	p := parser{file: path.Base(file), limits: Limits{}.WithDefaults(), seen: map[ID]int{}, strict: true}
	p.runlevel, p.component = Place(p.file)
	if err := checkBytes(data, p.limits); err != nil {
		return Examined{Errors: []*Error{{File: p.file, Err: err}}}
	}
	p.stream(data)
	out := Examined{Manifests: p.manifests, Repeated: p.repeated, Lines: p.lines}
	for _, err := range p.errs {
		if e, ok := errors.AsType[*Error](err); ok {
			out.Errors = append(out.Errors, e)
		}
	}
	return out
}

// decode decodes one document. If strict, it also returns the library's errors about repeated keys. Strict decoding keeps the first of
// several values, so decode then decodes the document again without it.
func (p *parser) decode(data []byte) (any, []string, error) {
	if !p.strict {
		value, err := decodeYAML(data)
		return value, nil, err
	}
	value, err := decodeYAMLWith(data, true)
	mistakes, ok := errors.AsType[*yamlv2.TypeError](err)
	if !ok {
		return value, nil, err
	}
	value, err = decodeYAML(data)
	return value, mistakes.Errors, err
}

var repeatedKey = regexp.MustCompile(`^line (\d+): key "?(.*?)"? already set in map$`)

// note records the repeated keys in the library's errors, with line numbers of the file.
func (p *parser) note(repeated []string, line int) {
	for _, text := range repeated {
		match := repeatedKey.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		n, err := strconv.Atoi(match[1])
		if err != nil {
			continue
		}
		p.repeated = append(p.repeated, RepeatedKey{Document: p.document, Line: n + line, Key: match[2]})
	}
}
