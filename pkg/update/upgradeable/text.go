package upgradeable

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
)

// Limits in bytes for texts from other authors.
const (
	maxName    = 253
	maxReason  = 256
	maxMessage = 2 << 10
	// maxCondition limits the message of condition Upgradeable, and maxSummary its part about one source.
	maxCondition = 32 << 10
	maxSummary   = 3600
)

// clean makes text from another author safe to display: valid UTF-8, no control characters except line feeds, no surrounding space, and at
// most limit bytes.
func clean(s string, limit int) string {
	// Text beyond the limit is not processed, because it may be as long as the largest object. A rune has up to four bytes.
	s = strings.ToValidUTF8(s[:min(len(s), 4*limit+utf8.UTFMax)], "\uFFFD")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r) && r != '\r':
			return ' '
		}
		return -1
	}, s)
	return printable.Excerpt(strings.TrimSpace(s), limit)
}

// wordPattern is the API's pattern for a condition's reason.
var wordPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// cleanWord returns another author's reason if it is valid, otherwise the substitute.
func cleanWord(s, substitute string) string {
	if len(s) > maxReason || !wordPattern.MatchString(s) {
		return substitute
	}
	return s
}

// riskName returns a risk's name from its source and subject. Different subjects result in different names: if it has to replace or cut
// characters, it appends a hash of the subject.
func riskName(source, subject string) string {
	name := source + "-" + strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, subject)
	if name != source+"-"+subject || len(name) > api.MaxRiskName {
		hash := sha256.Sum256([]byte(subject))
		name = name[:min(len(name), api.MaxRiskName-17)] + "-" + hex.EncodeToString(hash[:8])
	}
	return name
}

var urlPattern = regexp.MustCompile(`https://[^\s"'<>()\[\]{}|\\^` + "`" + `]+`)

// firstURL returns the first https URL in a text, or "".
func firstURL(s string) string {
	found := strings.TrimRight(urlPattern.FindString(s[:min(len(s), maxMessage)]), ".,;:!?")
	u, err := url.Parse(found)
	if err != nil || u.Host == "" || !utf8.ValidString(found) || strings.ContainsFunc(found, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return found
}
