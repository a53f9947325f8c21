package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// statsPath is the path that returns a registry's traffic since the last request for it.
const statsPath = "/bench/stats"

// traffic counts the requests and bytes of a registry.
type traffic struct {
	Requests int64 `json:"requests"`
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
}

// serveRegistry is the process of a registry, with the arguments DIR LATENCY.
func serveRegistry(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: registry DIR LATENCY")
	}
	latency, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var requests, sent, received atomic.Int64
	content := registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(args[0])), registry.WithReferrersSupport(true),
		registry.Logger(log.New(io.Discard, "", 0)))
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == statsPath {
			_ = json.NewEncoder(w).Encode(traffic{requests.Swap(0), sent.Swap(0), received.Swap(0)})
			return
		}
		requests.Add(1)
		if latency > 0 {
			time.Sleep(latency)
		}
		r.Body = &countedReader{r.Body, &received}
		content.ServeHTTP(&countedWriter{w, &sent}, r)
	})}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type countedReader struct {
	io.ReadCloser
	n *atomic.Int64
}

// Read implements io.Reader.
func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.n.Add(int64(n))
	return n, err
}

type countedWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

// Write implements io.Writer.
func (w *countedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.n.Add(int64(n))
	return n, err
}

// ReadFrom preserves the kernel's fast path for copying files.
func (w *countedWriter) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseWriter, r)
	w.n.Add(n)
	return n, err
}

// running is the process of a registry.
type running struct {
	host string
	cmd  *exec.Cmd
	dir  string
}

func startRegistry(ctx context.Context, latency time.Duration) (*running, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &running{}
	if r.dir, err = os.MkdirTemp("", "mirrorbench-"); err != nil {
		return nil, err
	}
	r.cmd = exec.CommandContext(ctx, self, "registry", r.dir, latency.String())
	r.cmd.Stderr = os.Stderr
	out, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err == nil {
		r.host, err = bufio.NewReader(out).ReadString('\n')
		r.host = strings.TrimSpace(r.host)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a registry: %w", err), r.stop())
	}
	return r, nil
}

func (r *running) stop() error {
	if r.cmd.Process != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait() // the process was killed
	}
	return os.RemoveAll(r.dir)
}

// stats returns the registry's traffic since the last call.
func (r *running) stats(ctx context.Context) (traffic, error) {
	var t traffic
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.host+statsPath, nil)
	if err != nil {
		return t, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	return t, json.NewDecoder(resp.Body).Decode(&t)
}
