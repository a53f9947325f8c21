package manifest

import (
	"errors"
	"path"
	"regexp"
	"strconv"

	yamlv2 "go.yaml.in/yaml/v2"
)

// RepeatedKey is a key that one map of a YAML document has more than once; the last of them counts.
type RepeatedKey struct {
	// Document counts from 1.
	Document int
	// Line is that of a later one.
	Line int
	Key  string
}

// Examined is what a file holds, mistakes or not.
type Examined struct {
	// Manifests are the objects that can be read.
	Manifests []*Manifest
	// Errors are those that Parse would join, in the order of the file.
	Errors []*Error
	// Repeated are keys that come more than once.
	Repeated []RepeatedKey
	// Lines are those on which the documents begin, in their order: Lines[m.Document-1].
	Lines []int
}

// Examine reads a file as Parse does, but goes on after mistakes and tells where everything is. It is for those who
// look at releases; who applies one takes Parse.
func Examine(file string, data []byte, limits Limits) Examined {
	p := parser{file: path.Base(file), limits: limits.WithDefaults(), seen: map[ID]int{}, strict: true}
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

// decode decodes one document and, when strict, returns what the library says of repeated keys. Strict decoding keeps
// the first of them, so such a document is decoded once more.
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

// note keeps what the library says of repeated keys, with lines of the file.
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
