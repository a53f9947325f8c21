package fault

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// portPatience is how long Listen waits for its port. A closed connection keeps one for a minute.
const portPatience = 90 * time.Second

// Listen listens at a TCP address at which an earlier listener of the caller was closed. An outgoing connection may have taken the port
// meanwhile, so Listen tries again for a while.
func Listen(address string) (net.Listener, error) {
	for begin := time.Now(); ; time.Sleep(time.Second) {
		listener, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begin) > portPatience {
			return listener, err
		}
	}
}
