// Package aliases rejects YAML documents from outside whose aliases expand to too much text. It takes the text of a document and decides
// whether a YAML library may decode it. It does not parse the document for the caller.
package aliases

import (
	"bytes"
	"errors"

	yamlv2 "go.yaml.in/yaml/v2"
)

// maxBytes is the limit of the expanded size. It is the default size limit of a manifest file, because no document from outside needs more.
const maxBytes = 8 << 20

// ErrTooLarge means that a document expands to more than the limit.
var ErrTooLarge = errors.New("exceeds the size limit of a file once aliases are expanded")

// Check rejects a YAML document whose aliases expand to more than 8 MiB. The YAML library limits how often aliases are followed, but not the
// size of their targets: a hundred kilobytes of text can become gigabytes of JSON. Call it before passing untrusted documents to
// sigs.k8s.io/yaml; manifest.Parse has its own check. Check ignores syntax errors, which that package rejects, and all documents after the
// first, which it ignores too.
func Check(data []byte) error {
	if bytes.IndexByte(data, '&') < 0 || bytes.IndexByte(data, '*') < 0 {
		return nil
	}
	var value any
	if err := yamlv2.NewDecoder(bytes.NewReader(data)).Decode(&value); err != nil {
		return nil //nolint:nilerr // see above
	}
	left := maxBytes
	if !fits(value, &left) {
		return ErrTooLarge
	}
	return nil
}

// fits subtracts the expanded size of a value from the number of bytes left. It reports whether the value fits.
func fits(value any, left *int) bool {
	size := 2
	switch v := value.(type) {
	case map[any]any:
		for key, item := range v {
			if !fits(key, left) || !fits(item, left) {
				return false
			}
		}
	case []any:
		for _, item := range v {
			if !fits(item, left) {
				return false
			}
		}
	case string:
		size += len(v)
	}
	*left -= size
	return *left >= 0
}
