package resp

// tellCut logs why the connection of a client ends.
func (c *Conn) tellCut(why string) {
	c.s.opt.Logger.Warn("a client was cut off", "event", "client_cut", "why", why, "client", c.RemoteAddr())
}

// tellDenied counts and logs that a client was refused.
func (c *Conn) tellDenied(user, command string) {
	c.s.stats.denied.Add(1)
	c.s.opt.Logger.Warn("a client was denied", "event", "denied", "user", user, "command", command, "client", c.RemoteAddr())
}
