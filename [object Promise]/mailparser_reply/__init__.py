from .parser import EmailReplyParser, EmailMessage, EmailReply
