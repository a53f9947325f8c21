//go:build linux

package systemd

import "time"

// SetAnswerTimeout sets the time in which systemd must accept a connection.
func (m *Manager) SetAnswerTimeout(timeout time.Duration) { m.answerTimeout = timeout }
