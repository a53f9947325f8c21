package manifest

import (
	"bytes"
	"fmt"
	"iter"
)

var (
	byteOrderMark = []byte("\xef\xbb\xbf")
	separator     = []byte("---")
)

// document is one document of a YAML stream.
type document struct {
	// text is the document as returned by YAMLReader of k8s.io/apimachinery.
	text []byte
	// line is the number of lines in the stream before the document.
	line int
	// err is set if anything but a comment follows the separator on its line.
	err error
}

// documents splits a YAML stream exactly as YAMLReader of k8s.io/apimachinery does, which kubectl and the original operator use: the
// objects and the payload hash depend on each byte. A line that begins with "---" separates documents, even where YAML disagrees. Only
// space and a comment may follow on that line. If no text precedes the line, it belongs to the document that it opens. "\r\n" becomes "\n",
// and the last line always ends with "\n".
//
// The reader loses a last line without a line break if its length is a multiple of the reader's buffer of 4096 bytes. This function keeps
// that line. The reader stops at the first invalid separator. This function reports it as the error of one document and continues with the
// next.
//
// The texts are slices of data; they are copied only if line breaks differ.
func documents(data []byte) iter.Seq[document] {
	return func(yield func(document) bool) {
		current := document{}
		for start, pos, line := 0, 0, 0; pos < len(data); line++ {
			end := pos + bytes.IndexByte(data[pos:], '\n') + 1
			if end == pos {
				end = len(data)
			}
			if rest, ok := bytes.CutPrefix(data[pos:end], separator); ok {
				err := checkSeparator(rest)
				if start < pos {
					current.text = normalizeBreaks(data[start:pos])
					if !yield(current) {
						return
					}
					start, current = end, document{line: line + 1}
				}
				if err != nil {
					start, current = pos, document{line: line, err: err}
				}
			}
			pos = end
			if pos == len(data) && start < pos {
				current.text = normalizeBreaks(data[start:])
				yield(current)
			}
		}
	}
}

func checkSeparator(rest []byte) error {
	rest = bytes.TrimSpace(rest)
	if len(rest) == 0 || rest[0] == '#' {
		return nil
	}
	return fmt.Errorf("text after the separator ---: %.40q. Move it to its own line", rest)
}

func normalizeBreaks(text []byte) []byte {
	if bytes.Contains(text, []byte("\r\n")) {
		text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	}
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n')
	}
	return text
}

// blank reports whether a document has only blank lines and comments. It saves work in the YAML library. Documents with unusual bytes are
// left to the library.
func blank(text []byte) bool {
	text = bytes.TrimPrefix(text, byteOrderMark)
	if rest, ok := bytes.CutPrefix(text, separator); ok {
		if rest[0] != ' ' && rest[0] != '\n' {
			return false
		}
		text = rest
	}
	comment := false
	for _, c := range text {
		switch {
		case c == '\n':
			comment = false
		case c == ' ', comment && (c == '\t' || c > ' ' && c <= '~'):
		case c == '#':
			comment = true
		default:
			return false
		}
	}
	return true
}

// firstLine returns the number of the first line with content in a document, counted from 1.
func firstLine(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimPrefix(line, byteOrderMark)
		if n == 1 {
			line = bytes.TrimPrefix(line, separator)
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			break
		}
	}
	return max(n, 1)
}
