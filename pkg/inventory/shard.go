package inventory

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	// format is that of the bytes of a shard. A reader refuses any other: raise it when an older one would misread.
	format = 1

	// maxPlain is how long the lines of a shard may be before they are compressed. Compression never adds more than a
	// few bytes, so every shard stays under 512 KiB whatever its records look like.
	maxPlain = 448 << 10
	// maxRecord bounds one line. The names of a real object take a tenth of it.
	maxRecord = 16 << 10
	// maxShards bounds the inventory.
	maxShards = 1 << 10

	// level is that of the compression: a third of the time of the usual one for 6 % more bytes.
	level = 2

	// maxRead and maxReadPlain bound what is read of a shard, compressed and not.
	maxRead      = 1 << 20
	maxReadPlain = 2 << 20
)

// header is the first line of a shard; the others are records.
type header struct {
	Format int `json:"format"`
	// Shard counts from 0 to Of-1.
	Shard int `json:"shard"`
	Of    int `json:"of"`
	// Generation grows whenever the number of shards changes. Where two shards have the same record, because the
	// writer was stopped in between, that of the later generation counts.
	Generation int `json:"generation"`
	// Release and Digest are those of the inventory, in the first shard only.
	Release string `json:"release,omitempty"`
	Digest  string `json:"digest,omitempty"`
}

// shardName is the name of the ConfigMap of a shard.
func shardName(owner string, shard int) string { return owner + "-inventory-" + strconv.Itoa(shard) }

// parseShardName is the reverse of shardName.
func parseShardName(owner, name string) (shard int, ok bool) {
	number, ok := strings.CutPrefix(name, owner+"-inventory-")
	if !ok {
		return 0, false
	}
	shard, err := strconv.Atoi(number)
	return shard, err == nil && shard >= 0 && shard < maxShards && strconv.Itoa(shard) == number
}

// assign returns the shard of an object, of a number of shards that is a power of two. It never changes for a given
// number: doubling the number splits each shard in two, and halving it joins these two. (FNV-1a, 64 bits.)
func assign(id manifest.ID, of int) int {
	h := uint64(14695981039346656037)
	for _, part := range [...]string{id.Group, id.Kind, id.Namespace, id.Name} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211 // no name contains this byte
	}
	h ^= h >> 32
	return int(h & uint64(of-1)) //nolint:gosec // of is small, so the result is
}

// weight returns how long the line of a record is at most.
func weight(r *Record) int {
	const rest = len(`{"object":{"group":"","kind":"","namespace":"","name":""},"version":"","content":"","fields":"",`+
		`"release":"","reached":true}`) + 2*2*len(Content{}) + 1
	total := rest
	for _, s := range [...]string{r.ID.Group, r.ID.Kind, r.ID.Namespace, r.ID.Name, r.Version, r.Release} {
		total += quoted(s)
	}
	if !r.Since.IsZero() {
		total += len(`,"since":"2006-01-02T15:04:05.999999999+07:00"`)
	}
	if r.Dropped != "" {
		total += len(`,"dropped":""`) + quoted(r.Dropped)
	}
	if r.File != "" {
		total += len(`,"file":""`) + quoted(r.File)
	}
	if r.Document != 0 {
		total += len(`,"document":`) + len(strconv.Itoa(r.Document))
	}
	return total
}

// quoted returns how long a string in JSON is at most.
func quoted(s string) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return 6 * len(s)
		}
	}
	return len(s)
}

// encoder writes shards. It keeps the memory of its compressor, which is large.
type encoder struct {
	buffer bytes.Buffer
	zip    *gzip.Writer
}

// encode returns the bytes of a shard. Equal headers and records give equal bytes. It sorts records.
func (e *encoder) encode(h header, records []Record) ([]byte, error) {
	h.Format = format
	slices.SortFunc(records, func(a, b Record) int { return Compare(a.ID, b.ID) })
	e.buffer.Reset()
	if e.zip == nil {
		var err error
		if e.zip, err = gzip.NewWriterLevel(&e.buffer, level); err != nil {
			return nil, err
		}
	} else {
		e.zip.Reset(&e.buffer)
	}
	lines := json.NewEncoder(e.zip)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(h); err != nil {
		return nil, err
	}
	for i := range records {
		if err := lines.Encode(&records[i]); err != nil {
			return nil, err
		}
	}
	if err := e.zip.Close(); err != nil {
		return nil, err
	}
	return bytes.Clone(e.buffer.Bytes()), nil
}

// decode reads the bytes of a shard; they may be anything.
func decode(data []byte) (header, []Record, error) {
	if len(data) > maxRead {
		return header{}, nil, fmt.Errorf("it has %d bytes, more than the %d that are read", len(data), maxRead)
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return header{}, nil, fmt.Errorf("uncompressing: %w", err)
	}
	plain, err := io.ReadAll(io.LimitReader(zip, maxReadPlain+1))
	if err != nil {
		return header{}, nil, fmt.Errorf("uncompressing: %w", err)
	}
	if len(plain) > maxReadPlain {
		return header{}, nil, fmt.Errorf("it has more than the %d bytes that are read, uncompressed", maxReadPlain)
	}
	first, lines, _ := bytes.Cut(plain, []byte("\n"))
	var h header
	if err := json.Unmarshal(first, &h); err != nil {
		return header{}, nil, fmt.Errorf("reading its first line: %w", err)
	}
	if err := h.check(); err != nil {
		return header{}, nil, err
	}
	records := make([]Record, 0, bytes.Count(lines, []byte("\n"))+1)
	n := 1
	for line := range bytes.Lines(lines) {
		n++
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return header{}, nil, fmt.Errorf("reading line %d: %w", n, err)
		}
		if r.ID.Kind == "" || r.ID.Name == "" {
			return header{}, nil, fmt.Errorf("reading line %d: it names no object", n)
		}
		records = append(records, r)
	}
	return h, records, nil
}

func (h header) check() error {
	switch {
	case h.Format != format:
		return fmt.Errorf("its format is %d, this version reads %d", h.Format, format)
	case h.Of < 1 || h.Of > maxShards || h.Of&(h.Of-1) != 0 || h.Shard < 0 || h.Shard >= h.Of || h.Generation < 0:
		return errors.New("its first line contradicts itself")
	}
	return nil
}
