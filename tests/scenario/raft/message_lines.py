"""A message in one line."""

from millstream.cluster.raft import messages as m


def message_line(message: m.Message) -> str:
    return f"  {message.sender.node_id}>{message.to.node_id} {_text(message)}"


def _text(message: m.Message) -> str:
    term = f"term {message.term}"
    match message:
        case m.PreVoteRequest():
            return f"would you vote for me in {term}? log ends {message.last_index}/{message.last_term}"
        case m.PreVoteReply():
            return f"{'I would' if message.granted else 'I would not'}, {term}"
        case m.VoteRequest():
            asked = ", the leader asked me to" if message.transfer else ""
            return f"vote for me in {term}, log ends {message.last_index}/{message.last_term}{asked}"
        case m.VoteReply():
            return f"{'my vote' if message.granted else 'no vote'} in {term}"
        case m.AppendRequest():
            terms = " ".join(str(entry.term) for entry in message.entries) or "nothing"
            after = f"{message.prev_index}/{message.prev_term}"
            return f"append {terms} after {after}, commit {message.commit_index}, {term}"
        case m.AppendReply():
            return f"have {message.match_index}, {term}"
        case m.AppendRejected():
            hint = f"{message.hint_index}/{message.hint_term}"
            return f"nothing to match {message.rejected_index}, try {hint}, {term}"
        case m.Heartbeat():
            return f"heartbeat commit {message.commit_index} round {message.read_round}, {term}"
        case m.HeartbeatReply():
            return f"alive round {message.read_round}, {term}"
        case m.InstallSnapshot():
            return f"snapshot at {message.snapshot.index}/{message.snapshot.term}, {term}"
        case m.TimeoutNow():
            return f"stand for election, {term}"
        case m.ReadRequest():
            return f"where is read {message.token.int}? {term}"
        case m.ReadReply():
            return f"read {message.token.int} is at {message.index}, {term}"
