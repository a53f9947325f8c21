package upgradeable

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cluster-version/cvo/pkg/api"
)

// Bounds of what others have written, in bytes.
const (
	maxName    = 253
	maxReason  = 256
	maxMessage = 2 << 10
	// maxCondition bounds the message of condition Upgradeable, maxSummary what it says of one source.
	maxCondition = 32 << 10
	maxSummary   = 3600
	// maxRisk is the longest name of a risk that ClusterVersion takes.
	maxRisk = 256
)

// clean makes text of others fit to be shown: valid, no control characters but line feeds, no space around, and not
// longer than limit.
func clean(s string, limit int) string {
	// What does not fit is not looked at: text may be as long as an object may be. A rune has up to four bytes.
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
	return api.Excerpt(strings.TrimSpace(s), limit)
}

// wordPattern is that of the reason of a condition.
var wordPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// word returns a reason of others if it can be one, else the substitute.
func word(s, substitute string) string {
	if len(s) > maxReason || !wordPattern.MatchString(s) {
		return substitute
	}
	return s
}

// riskName names a risk by its source and subject. Subjects that differ give names that differ: what does not fit into a
// name is replaced, and then a hash of the subject follows.
func riskName(source, subject string) string {
	name := source + "-" + strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, subject)
	if name != source+"-"+subject || len(name) > maxRisk {
		hash := sha256.Sum256([]byte(subject))
		name = name[:min(len(name), maxRisk-17)] + "-" + hex.EncodeToString(hash[:8])
	}
	return name
}

var urlPattern = regexp.MustCompile(`https://[^\s"'<>()\[\]{}|\\^` + "`" + `]+`)

// firstURL is the first web address in a text, "" if there is none.
func firstURL(s string) string {
	found := strings.TrimRight(urlPattern.FindString(s[:min(len(s), maxMessage)]), ".,;:!?")
	u, err := url.Parse(found)
	if err != nil || u.Host == "" || !utf8.ValidString(found) || strings.ContainsFunc(found, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return found
}
