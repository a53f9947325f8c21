package inventory

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/manifest"
)

const (
	// format is the version of a shard's format. A reader rejects all others. Raise it if an older reader would misread the new format.
	format = 1

	// maxPlain is the maximum length of a shard's lines before compression. Compression never adds more than a few bytes, so every shard
	// stays below 512 KiB.
	maxPlain = 448 << 10
	// maxRecord is the maximum length of a record's line. Names of real objects need a tenth of it.
	maxRecord = 16 << 10
	// maxShards is the maximum number of shards.
	maxShards = 1 << 10

	// level is the compression level. It needs a third of the default level's time, for 6 % more bytes.
	level = 2

	// maxRead and maxReadPlain limit the bytes that are read from a shard, compressed and uncompressed.
	maxRead      = 1 << 20
	maxReadPlain = 2 << 20
)

// header is the first line of a shard. All other lines are records.
type header struct {
	Format int `json:"format"`
	// Shard is a number from 0 to Of-1.
	Shard int `json:"shard"`
	Of    int `json:"of"`
	// Generation grows whenever the number of shards changes. If the writer was interrupted, two shards may contain the same record. The
	// record in the later generation counts.
	Generation int `json:"generation"`
	// Release and Digest come from the inventory. Only the first shard contains them.
	Release string `json:"release,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// unreadable describes the lines that were skipped when the shard was read; empty if there were none.
	unreadable string
}

// shardName returns the name of a shard's ConfigMap.
func shardName(owner string, shard int) string { return owner + "-inventory-" + strconv.Itoa(shard) }

// parseShardName is the inverse of shardName.
func parseShardName(owner, name string) (shard int, ok bool) {
	number, ok := strings.CutPrefix(name, owner+"-inventory-")
	if !ok {
		return 0, false
	}
	shard, err := strconv.Atoi(number)
	return shard, err == nil && shard >= 0 && shard < maxShards && strconv.Itoa(shard) == number
}

// assign returns the shard of an object (FNV-1a, 64 bits). The number of shards, of, is a power of two. The result for a given number never
// changes. Doubling the number splits each shard in two, and halving it joins these two.
func assign(id manifest.ID, of int) int {
	h := uint64(14695981039346656037)
	for _, part := range [...]string{id.Group, id.Kind, id.Namespace, id.Name} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211 // no name contains this byte
	}
	h ^= h >> 32
	return int(h & uint64(of-1))
}

// weight returns the maximum length of a record's line.
func weight(r *Record) int {
	const rest = len(`{"object":{"group":"","kind":"","namespace":"","name":""},"version":"","content":"","fields":"",`+
		`"release":"","reached":true,"finished":true}`) + 2*2*len(Content{}) + 1
	total := rest
	for _, s := range [...]string{r.ID.Group, r.ID.Kind, r.ID.Namespace, r.ID.Name, r.Version, r.Release} {
		total += quoted(s)
	}
	if r.UID != "" {
		total += len(`,"uid":""`) + quoted(string(r.UID))
	}
	if r.ResourceVersion != "" {
		total += len(`,"resourceVersion":""`) + quoted(r.ResourceVersion)
	}
	if r.Time != 0 {
		total += len(`,"time":`) + len(strconv.FormatInt(r.Time, 10))
	}
	if r.Generation != 0 {
		total += len(`,"generation":`) + len(strconv.FormatInt(r.Generation, 10))
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

// quoted returns the maximum length of a string in JSON.
func quoted(s string) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return 6 * len(s)
		}
	}
	return len(s)
}

// encoder encodes shards. It reuses its compressor, which needs much memory.
type encoder struct {
	buffer bytes.Buffer
	zip    *gzip.Writer
}

// encode returns the bytes of a shard. Equal headers and records result in equal bytes. It sorts the given records.
func (e *encoder) encode(h header, records []Record) ([]byte, error) {
	h.Format = format
	sorted.By(records, func(a, b Record) int { return Compare(a.ID, b.ID) })
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

// decode decodes a shard from arbitrary bytes. It skips invalid lines, and describes them in the header.
func decode(data []byte) (header, []Record, error) {
	if len(data) > maxRead {
		return header{}, nil, fmt.Errorf("%d bytes exceed the limit of %d", len(data), maxRead)
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
		return header{}, nil, fmt.Errorf("more than %d bytes when uncompressed", maxReadPlain)
	}
	first, lines, _ := bytes.Cut(plain, []byte("\n"))
	var h header
	if err := json.Unmarshal(first, &h); err != nil {
		return header{}, nil, fmt.Errorf("reading the first line: %w", err)
	}
	if err := h.check(); err != nil {
		return header{}, nil, err
	}
	records := make([]Record, 0, bytes.Count(lines, []byte("\n"))+1)
	n, skipped := 1, 0
	for line := range bytes.Lines(lines) {
		n++
		var r Record
		err := json.Unmarshal(line, &r)
		if err == nil && (r.ID.Kind == "" || r.ID.Name == "") {
			err = errors.New("record without kind or name")
		}
		if err == nil {
			records = append(records, r)
			continue
		}
		if skipped++; skipped == 1 {
			h.unreadable = fmt.Sprintf("line %d: %v", n, err)
		}
	}
	if skipped > 1 {
		h.unreadable = fmt.Sprintf("%d lines, starting with %s", skipped, h.unreadable)
	}
	return h, records, nil
}

func (h header) check() error {
	switch {
	case h.Format != format:
		return fmt.Errorf("format %d is not supported, only %d", h.Format, format)
	case h.Of < 1 || h.Of > maxShards || h.Of&(h.Of-1) != 0 || h.Shard < 0 || h.Shard >= h.Of || h.Generation < 0:
		return errors.New("inconsistent first line")
	}
	return nil
}
