package substitute

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// placeholder is a rule from a component's image-references: it replaces from with to.
type placeholder struct{ from, to string }

// placeholders returns a component's rules, which replace the placeholders in its image-references with the pullspecs of the release's
// images. If the release lacks an image, allowMissing keeps the placeholder; otherwise, that is an error.
func placeholders(component string, refs []imagev1.TagReference, pullspecs map[string]string, allowMissing bool) ([]placeholder, error) {
	mistake := func(format string, args ...any) error {
		return input.Mistake(path.Join(component, input.ReferencesFile), "component %s: %s: %w", component, input.ReferencesFile, fmt.Errorf(format, args...))
	}
	var rules []placeholder
	tagOf := map[string]string{}
	for _, tag := range refs {
		if tag.From == nil || tag.From.Name == "" {
			return nil, mistake("tag %q has no from.name, which is the text to replace", tag.Name)
		}
		if first, seen := tagOf[tag.From.Name]; seen {
			return nil, mistake("tags %q and %q both replace %q", first, tag.Name, tag.From.Name)
		}
		tagOf[tag.From.Name] = tag.Name
		pullspec, known := pullspecs[tag.Name]
		switch {
		case known:
			rules = append(rules, placeholder{from: tag.From.Name, to: pullspec})
		case !allowMissing:
			return nil, MissingImage(component, tag.Name)
		}
	}
	longestFirst(rules)
	return rules, nil
}

// longestFirst sorts rules. A placeholder may be a prefix of another. The longer one takes precedence.
func longestFirst(rules []placeholder) {
	sorted.By(rules, func(a, b placeholder) int {
		if len(a.from) != len(b.from) {
			return len(b.from) - len(a.from)
		}
		return strings.Compare(a.from, b.from)
	})
}

// Unused returns the tags in a component's image-references whose placeholder is in none of the component's files. It omits tags without a
// placeholder.
func Unused(c *input.Component) []imagev1.TagReference {
	var rules []placeholder
	var tags []imagev1.TagReference
	for _, tag := range c.References {
		if tag.From != nil && tag.From.Name != "" {
			tags = append(tags, tag)
			rules = append(rules, placeholder{from: tag.From.Name, to: tag.From.Name})
		}
	}
	longestFirst(rules)
	used := map[string]bool{}
	for _, f := range c.Files {
		for at := 0; at < len(f.Data); {
			from, end := matchImage(f.Data, at, rules, delimited)
			used[from] = true
			at = max(at+1, end)
		}
	}
	return slices.DeleteFunc(tags, func(tag imagev1.TagReference) bool { return used[tag.From.Name] })
}

// MissingImage returns the error about an image in a component's image-references that the release lacks.
func MissingImage(component, name string) *input.ContentError {
	return &input.ContentError{Path: path.Join(component, input.ReferencesFile), Missing: true, Err: fmt.Errorf(
		"component %s: %s: no input image tag named %q: add the argument %s=PULLSPEC, or list the image by digest in %s at the top of --from-dir",
		component, input.ReferencesFile, name, name, input.ReferencesFile)}
}

// replaceImages replaces placeholders with pullspecs. A word character must not precede a placeholder, and a space, a quote or the end of
// the text must follow. An optional :tag and @digest after the placeholder are replaced too. All rules are applied in a single pass, so
// that inserted pullspecs are never replaced again.
func replaceImages(data []byte, rules []placeholder) []byte {
	if len(rules) == 0 {
		return data
	}
	var out bytes.Buffer
	copied := 0
	for i := 0; i < len(data); {
		to, end := matchImage(data, i, rules, followed)
		if end == 0 {
			i++
			continue
		}
		out.Write(data[copied:i])
		out.WriteString(to)
		i, copied = end, end
	}
	if copied == 0 {
		return data
	}
	out.Write(data[copied:])
	return out.Bytes()
}

// matchImage returns the replacement of the placeholder at a position, and its end; zero if there is none. ends decides whether a placeholder
// may end before the rest of the data.
func matchImage(data []byte, at int, rules []placeholder, ends func(rest []byte) bool) (to string, end int) {
	if at > 0 && isWord(data[at-1]) {
		return "", 0
	}
	for _, rule := range rules {
		if !bytes.HasPrefix(data[at:], []byte(rule.from)) {
			continue
		}
		if end := skipSuffix(data, at+len(rule.from)); ends(data[end:]) {
			return rule.to, end
		}
	}
	return "", 0
}

// followed reports whether existing tools replace a placeholder before the rest of a text.
func followed(rest []byte) bool {
	return len(rest) == 0 || strings.IndexByte(" \t\r\n\f\"'", rest[0]) >= 0
}

// delimited reports whether a placeholder ends before the rest of a text. Another image's name may begin like it.
func delimited(rest []byte) bool {
	return len(rest) == 0 || !isWord(rest[0]) && strings.IndexByte("/-.:@", rest[0]) < 0
}

// find returns the first placeholder in a parsed value that ends as given, with its :tag and @digest; empty if there is none. In the file,
// more may have followed it, as in flow style. It was not replaced then, because existing tools do not replace it either.
func find(value any, rules []placeholder, ends func(rest []byte) bool) string {
	switch v := value.(type) {
	case string:
		text := []byte(v)
		for at := 0; at < len(text); {
			// An inserted pullspec may itself begin like a placeholder.
			inserted := slices.IndexFunc(rules, func(r placeholder) bool { return bytes.HasPrefix(text[at:], []byte(r.to)) })
			if inserted >= 0 {
				at += len(rules[inserted].to)
				continue
			}
			if _, end := matchImage(text, at, rules, ends); end > 0 {
				return v[at:end]
			}
			at++
		}
	case []any:
		for _, item := range v {
			if left := find(item, rules, ends); left != "" {
				return left
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if left := find(v[key], rules, ends); left != "" {
				return left
			}
		}
	}
	return ""
}

// skipSuffix skips an optional :tag and an optional @algorithm:hex.
func skipSuffix(data []byte, at int) int {
	for _, part := range []struct {
		lead  byte
		chars string
	}{{':', "._-"}, {'@', ":._-+"}} {
		if at >= len(data) || data[at] != part.lead {
			continue
		}
		end := at + 1
		for end < len(data) && (isWord(data[end]) || strings.IndexByte(part.chars, data[end]) >= 0) {
			end++
		}
		if end > at+1 {
			at = end
		}
	}
	return at
}

// replaceVersions replaces 0.0.1-snapshot with the release's version, and 0.0.1-snapshot-key with the version for the key. A placeholder
// must not touch a word character. An unknown key is an error; its placeholder becomes the release's version.
func replaceVersions(data []byte, version string, keyed map[string]string) ([]byte, error) {
	if !bytes.Contains(data, []byte(manifest.VersionPlaceholder)) {
		return data, nil
	}
	var out bytes.Buffer
	var unknown error
	for at := 0; at < len(data); {
		start := bytes.Index(data[at:], []byte(manifest.VersionPlaceholder))
		if start < 0 {
			out.Write(data[at:])
			break
		}
		start += at
		end := start + len(manifest.VersionPlaceholder)
		key, keyEnd := versionKey(data, end)
		to := version
		switch {
		case start > 0 && isWord(data[start-1]), end < len(data) && isWord(data[end]):
			to = manifest.VersionPlaceholder
		case key != "":
			if keyedVersion, known := keyed[key]; known {
				to = keyedVersion
			} else if unknown == nil {
				unknown = fmt.Errorf("unknown version reference %q in %s-%s: no image of the component reports this version, and no component version defines it", key, manifest.VersionPlaceholder, key)
			}
			end = keyEnd
		}
		out.Write(data[at:start])
		out.WriteString(to)
		at = end
	}
	return out.Bytes(), unknown
}

// versionKey parses "-key" and returns the key and its end. A dash without a key is ordinary text.
func versionKey(data []byte, at int) (key string, end int) {
	if at >= len(data) || data[at] != '-' {
		return "", at
	}
	end = at + 1
	for end < len(data) && isKey(data[end]) {
		end++
	}
	key = strings.TrimRight(string(data[at+1:end]), "-")
	if key == "" || key[0] == '-' {
		return "", at
	}
	return key, at + 1 + len(key)
}

func isKey(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}
