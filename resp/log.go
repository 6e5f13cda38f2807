package resp

// tellCut says in the log why a client's connection ends.
func (c *Conn) tellCut(why string) {
	c.s.opt.Logger.Warn("a client was cut off", "event", "client_cut", "why", why, "client", c.RemoteAddr())
}

// tellDenied says in the log that a client was refused.
func (c *Conn) tellDenied(user, command string) {
	c.s.stats.denied.Add(1)
	c.s.opt.Logger.Warn("a client was denied", "event", "denied", "user", user, "command", command, "client", c.RemoteAddr())
}
