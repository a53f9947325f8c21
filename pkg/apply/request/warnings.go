package request

import (
	"context"
	"regexp"
	"strconv"
)

// unknownFieldWarnings collects the paths in the server's warnings about objects that were not sent by server-side apply.
type unknownFieldWarnings struct{ paths []string }

var unknownFieldWarning = regexp.MustCompile(`^unknown field ("(?:[^"\\]|\\.)*")$`)

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *unknownFieldWarnings) HandleWarningHeaderWithContext(_ context.Context, code int, _ string, text string) {
	const persistent = 299 // RFC 7234, section 5.5; the only code that Kubernetes uses
	if match := unknownFieldWarning.FindStringSubmatch(text); code == persistent && match != nil {
		if path, err := strconv.Unquote(match[1]); err == nil {
			w.paths = append(w.paths, "."+path)
		}
	}
}
