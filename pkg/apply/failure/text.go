package failure

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The API server reports an object that does not match a schema with code 500 and no reason, so only the text shows the class. These
// texts come from k8s.io/apimachinery/pkg/util/managedfields, apiextensions-apiserver and structured-merge-diff.
const (
	// bodyMismatch is the beginning of the error about an apply whose body does not match the schema of its kind. The object's name and
	// kind follow, and then one or more lines about fields.
	bodyMismatch = "failed to create typed patch object ("
	// liveMismatch is the beginning of the error if the live object does not match the schema of the manifest's API version.
	liveMismatch = "failed to create typed live object ("
	// unownedMismatch is the same for an object whose managedFields are empty.
	unownedMismatch = "failed to create manager for existing fields: "
	// conversionError is part of the error about a value that does not fit the Go type of a built-in kind, such as Secret data that is not
	// base64. It also follows unownedMismatch.
	conversionError = "failed to convert new object ("
	// failedConversion is part of the error about a conversion webhook that failed or answered with an invalid object, and prunedConversion of
	// the error about an answer without metadata.
	failedConversion = "conversion webhook for "
	prunedConversion = "failed to convert pruned object"
	// undeclaredField ends a line about a field that a schema does not have.
	undeclaredField = ": field not declared in schema"
	// repeatedEntry is the text between the path of a list and the key of its duplicate entries.
	repeatedEntry = ": duplicate entries for key "
)

// otherType matches the part of a line about a value of another type, and about an item that a list with keys or a set cannot have.
var otherType = regexp.MustCompile(`: (?:expected |element [0-9]+: )`)

// removedVersion matches the server's message about an entry in managedFields whose version the definition no longer has.
var removedVersion = regexp.MustCompile(`request to convert CR to an invalid group/version: (\S+)`)

// IsBodyMismatch reports whether the body of an apply does not match the schema of its kind.
func IsBodyMismatch(err error) bool { return contains(err, bodyMismatch) }

// IsUnreadable reports whether an apply failed because the live object does not match the schema of the manifest's API version.
func IsUnreadable(err error) bool {
	return contains(err, liveMismatch) || contains(err, unownedMismatch)
}

// Mistyped returns the fields of an unreadable live object whose values have another type than the manifest's API version, in the notation
// of UndeclaredField.
func Mistyped(err error) (paths []string) {
	if !IsUnreadable(err) {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		if path, ok := mistyped(line); ok {
			paths = append(paths, path)
		}
	}
	return paths
}

// mistyped returns the path in a line about a value of another type. The path of an item that a list cannot have is that of the list.
func mistyped(line string) (path string, ok bool) {
	at := otherType.FindStringIndex(line)
	if at == nil {
		return "", false
	}
	return lastPart(line[:at[0]]), true
}

// lastPart returns the path at the end of a line, also of the first line of an error. A path starts with a dot, and its keys may contain colons.
func lastPart(line string) string {
	if at := strings.Index(line, ": ."); at >= 0 {
		line = line[at+1:]
	}
	return strings.TrimSpace(line)
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// Mismatches returns the lines about fields of the server's error about a body that does not match its schema.
func Mismatches(err error) (lines []string) {
	if err == nil {
		return nil
	}
	_, text, _ := strings.Cut(err.Error(), bodyMismatch)
	_, text, _ = strings.Cut(text, "): ")
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// UndeclaredField returns the field that a schema does not have according to a line of Mismatches, in the notation of structured-merge-diff:
// `.spec.containers[name="x"].image`.
func UndeclaredField(line string) (path string, ok bool) {
	return strings.CutSuffix(line, undeclaredField)
}

// RepeatedEntry returns the list and the key of its duplicate entries according to a line of Mismatches.
func RepeatedEntry(line string) (path, key string, ok bool) { return strings.Cut(line, repeatedEntry) }

// internalMessage returns the message of an error with status 500; empty for others.
func internalMessage(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInternalServerError {
		return ""
	}
	return status.Status().Message
}

// unconvertible returns the fields of the live object that do not match the schema of some API version in its managedFields, according to the
// server's error. It has status 500, although the control plane works.
func unconvertible(err error) (paths []string) {
	if IsBodyMismatch(err) {
		return nil
	}
	for line := range strings.Lines(internalMessage(err)) {
		path, ok := mistyped(line)
		if before, undeclared := UndeclaredField(strings.TrimSpace(line)); undeclared {
			path, ok = lastPart(before), true
		}
		if ok && strings.HasPrefix(path, ".") && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// IsConversion reports whether an apply of a custom resource may have failed because the server could not convert the object to the versions
// of its managedFields. The server reports status 500, as for other errors, but another text for a body that does not match the schema.
func IsConversion(err error) bool {
	return len(unconvertible(err)) > 0 || removedVersion.MatchString(internalMessage(err))
}

// IsWebhookConversion reports whether a conversion webhook failed. The server reports status 500, although the control plane works.
func IsWebhookConversion(err error) bool {
	text := internalMessage(err)
	return strings.Contains(text, failedConversion) || strings.Contains(text, prunedConversion)
}

// RemovedVersion returns the API version of an entry in managedFields that the kind's definition no longer has, or "".
func RemovedVersion(err error) string {
	if err == nil {
		return ""
	}
	if match := removedVersion.FindStringSubmatch(err.Error()); match != nil {
		return match[1]
	}
	return ""
}
