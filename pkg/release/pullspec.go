package release

import (
	"iter"
	"strings"
)

// Pullspec names an image: a registry and a repository, followed by a tag, a digest or both. Its methods only split the text. They accept
// malformed text and do not validate it.
type Pullspec string

// Digest returns the digest as written, or "" if the pullspec has none. Use ParseDigest to check it.
func (p Pullspec) Digest() Digest {
	_, digest, _ := strings.Cut(string(p), "@")
	return Digest(digest)
}

// HasDigest reports whether the pullspec has a digest, valid or not.
func (p Pullspec) HasDigest() bool { return p.Digest() != "" }

// Pinned reports whether the pullspec has a valid digest.
func (p Pullspec) Pinned() bool {
	_, err := ParseDigest(string(p.Digest()))
	return err == nil
}

// Tag returns the tag, or "" if the pullspec has none.
func (p Pullspec) Tag() string {
	_, tag := p.named()
	return tag
}

// Repository returns the pullspec without tag and digest, such as "registry.example:5000/platform/release".
func (p Pullspec) Repository() string {
	repository, _ := p.named()
	return repository
}

// WithDigest returns the pullspec of a digest in the same repository.
func (p Pullspec) WithDigest(d Digest) Pullspec { return Pullspec(p.Repository() + "@" + string(d)) }

// SameImage reports whether two pullspecs name the same image. If both have a digest, it compares only the digests; otherwise it compares
// the texts.
func SameImage(a, b string) bool {
	if digestA, digestB := Pullspec(a).Digest(), Pullspec(b).Digest(); digestA != "" && digestB != "" {
		return digestA == digestB
	}
	return a == b
}

// named splits repository and tag. A colon before the last slash belongs to a port.
func (p Pullspec) named() (repository, tag string) {
	name, _, _ := strings.Cut(string(p), "@")
	if slash, colon := strings.LastIndex(name, "/"), strings.LastIndex(name, ":"); colon > slash {
		return name[:colon], name[colon+1:]
	}
	return name, ""
}

// digestMark is the beginning of a digest in a text. digestLength is the number of its hex digits.
const (
	digestMark   = "@sha256:"
	digestLength = 64
)

// Pullspecs returns every pullspec by digest in a text, in order, with its offset.
func Pullspecs(text string) iter.Seq2[int, Pullspec] {
	return func(yield func(int, Pullspec) bool) {
		for from := 0; ; {
			i := strings.Index(text[from:], digestMark)
			if i < 0 {
				return
			}
			mark := from + i
			start, end := mark, mark+len(digestMark)
			for start > from && IsPullspecByte(text[start-1]) {
				start--
			}
			for end < len(text) && isHex(text[end]) {
				end++
			}
			from = end
			if start < mark && end-mark-len(digestMark) == digestLength && !yield(start, Pullspec(text[start:end])) {
				return
			}
		}
	}
}

// IsPullspecByte reports whether the repository or the tag of a pullspec may contain a byte.
func IsPullspecByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-/:", c) >= 0
}

func isHex(c byte) bool { return c >= 'a' && c <= 'f' || c >= '0' && c <= '9' }
