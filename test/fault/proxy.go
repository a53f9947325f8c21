package fault

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy forwards TCP connections from a constant port of this machine to a server and can simulate network faults. Unlike a RoundTripper,
// it can affect other programs.
type Proxy struct {
	target, address string

	mu       sync.Mutex
	listener net.Listener
	lost     bool
	rate     int
	links    map[*link]struct{}
}

// NewProxy starts to forward connections to target, an address for net.Dial, until Close.
func NewProxy(target string) (*Proxy, error) {
	p := &Proxy{target: target, address: "127.0.0.1:0", links: map[*link]struct{}{}}
	if err := p.Accept(); err != nil {
		return nil, err
	}
	return p, nil
}

// Address returns the address on which the proxy listens.
func (p *Proxy) Address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

// Refuse simulates a server that is down. It resets connections and refuses new ones.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.reset()
	}
}

// Accept ends Refuse.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	listener, err := Listen(p.address)
	if err != nil {
		return fmt.Errorf("listening for connections to %s: %w", p.target, err)
	}
	p.listener, p.address = listener, listener.Addr().String()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			p.carry(conn)
		}
	}()
	return nil
}

// Lose simulates a cut network: nothing arrives in either direction, without any error. Connections that existed during that time stay
// dead, because they miss bytes.
func (p *Proxy) Lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	for l := range p.links {
		l.lose()
	}
}

// Find ends Lose for new connections.
func (p *Proxy) Find() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = false
}

// Limit simulates a slow network. rate is the number of bytes per second from the server, for each connection; 0 is no limit.
func (p *Proxy) Limit(rate int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = rate
}

// Close resets all connections and frees the port.
func (p *Proxy) Close() { p.Refuse() }

func (p *Proxy) limit() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

func (p *Proxy) carry(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{ends: [2]net.Conn{client, server}}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.lost {
		l.lose()
	}
	if p.listener == nil {
		l.reset()
	}
	p.mu.Unlock()
	var done sync.WaitGroup
	done.Go(func() { l.copy(server, client, func() int { return 0 }) })
	done.Go(func() { l.copy(client, server, p.limit) })
	go func() {
		done.Wait()
		_ = client.Close()
		_ = server.Close()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
}

// link is a connection.
type link struct {
	ends [2]net.Conn

	mu   sync.Mutex
	dead bool
}

func (l *link) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

func (l *link) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

func (l *link) reset() {
	for _, end := range l.ends {
		if tcp, ok := end.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = end.Close()
	}
}

// copy forwards one direction. It drops all data of a lost connection, including the end.
func (l *link) copy(to, from net.Conn, limit func() int) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !l.send(to, buffer[:n], limit()) {
			return
		}
		if err == nil {
			continue
		}
		if tcp, ok := to.(*net.TCPConn); ok && !l.lost() {
			_ = tcp.CloseWrite()
		}
		return
	}
}

// send forwards data at a rate in bytes per second, in steps of a tenth of a second.
func (l *link) send(to net.Conn, data []byte, rate int) bool {
	for len(data) > 0 && !l.lost() {
		part := data
		if rate > 0 {
			part = data[:min(len(data), max(1, rate/10))]
			time.Sleep(time.Duration(len(part)) * time.Second / time.Duration(rate))
		}
		if _, err := to.Write(part); err != nil {
			return false
		}
		data = data[len(part):]
	}
	return true
}
