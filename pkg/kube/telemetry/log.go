package telemetry

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// NewLogger returns the only logger of a process, which writes lines of JSON up to a level. It also receives the logs of client-go and
// controller-runtime.
func NewLogger(out io.Writer, verbosity int) logr.Logger {
	h := slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.Level(-verbosity)})
	logger := logr.FromSlogHandler(h)
	klog.SetSlogLogger(slog.New(h))
	log.SetLogger(logger)
	return logger
}
