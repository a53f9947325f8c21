package lint

import (
	"bytes"
	"path"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// imagePlaceholders are repositories that stand for images until a release is assembled, by the habit of those who write
// operators for OpenShift.
func imagePlaceholders() []string {
	return []string{
		"placeholder.url.oc.will.replace.this.org/",
		"example.com/image-reference-placeholder",
		"registry.svc.ci.openshift.org/openshift:",
		"registry.ci.openshift.org/openshift:",
		"quay.io/openshift/origin-",
	}
}

func placeholderImage(pullspec string) bool {
	return slices.ContainsFunc(imagePlaceholders(), func(p string) bool { return strings.HasPrefix(pullspec, p) })
}

// mention is a pullspec by digest somewhere in a file.
type mention struct {
	pullspec string
	offset   int
}

const digestMark = "@sha256:"

// findImages looks through the text of a file, whatever it means: operators keep the pullspecs of what they run in
// variables, arguments and ConfigMaps.
func (c *check) findImages(f *file) {
	for at := 0; ; {
		i := bytes.Index(f.text[at:], []byte(digestMark))
		if i < 0 {
			break
		}
		i += at
		start := i
		for start > 0 && isPullspec(f.text[start-1]) {
			start--
		}
		end := i + len(digestMark)
		for end < len(f.text) && isHex(f.text[end]) {
			end++
		}
		at = end
		if start < i && end-i-len(digestMark) == 64 {
			f.images = append(f.images, mention{pullspec: string(f.text[start:end]), offset: start})
		}
	}
	for _, m := range f.images {
		if m.pullspec == c.opts.ReleaseImage || c.references.pullspecs[m.pullspec] || f.comment(m.offset) {
			continue
		}
		f.found.document("image-not-in-release", f, f.lineAt(m.offset), f.documentAt(m.offset), "",
			quoted(m.pullspec)+" is none of the release's images")
	}
	f.findPlaceholders()
}

// findPlaceholders looks for what assembling the release should have replaced.
func (f *file) findPlaceholders() {
	for _, mark := range append([]string{manifest.VersionPlaceholder}, imagePlaceholders()...) {
		rule := "image-placeholder"
		switch {
		case mark != manifest.VersionPlaceholder:
		case path.Dir(f.name) == payload.OperatorDir:
			rule = "operator-placeholder"
		default:
			rule = "version-placeholder"
		}
		for at := 0; ; {
			i := bytes.Index(f.text[at:], []byte(mark))
			if i < 0 {
				break
			}
			i += at
			at = i + len(mark)
			if i > 0 && (isPullspec(f.text[i-1]) && f.text[i-1] != ':' && f.text[i-1] != '/') || f.comment(i) {
				continue
			}
			end := at
			for end < len(f.text) && isPullspec(f.text[end]) {
				end++
			}
			f.found.document(rule, f, f.lineAt(i), f.documentAt(i), "", quoted(string(f.text[i:min(end, i+200)]))+" was not replaced")
		}
	}
}

// comment reports whether an offset lies in a line that is a comment.
func (f *file) comment(offset int) bool {
	line := f.text[bytes.LastIndexByte(f.text[:offset], '\n')+1:]
	return bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("#"))
}

// documentAt is the document that an offset lies in.
func (f *file) documentAt(offset int) int {
	line := 1 + bytes.Count(f.text[:offset], []byte("\n"))
	n, exact := slices.BinarySearch(f.parsed.Lines, line)
	if exact {
		n++
	}
	return n
}

func isPullspec(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-/:", c) >= 0
}

func isHex(c byte) bool { return c >= 'a' && c <= 'f' || c >= '0' && c <= '9' }
