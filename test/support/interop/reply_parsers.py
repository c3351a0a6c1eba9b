"""Reply parsers that others wrote, asked what the reply in a text is.

Standard input is a JSON list of texts; the answer has, for each parser, the replies in the same order. With
`--cases FOLDER`, prints what the tests of talon (its source distribution, unpacked there) expect of a text.
"""
import json
import re
import sys


def ask(texts):
    from email_reply_parser import EmailReplyParser as Zapier
    from mailparser_reply import EmailReplyParser
    from mailparser_reply.constants import MAIL_LANGUAGES

    every = EmailReplyParser(languages=list(MAIL_LANGUAGES))
    return {
        'email_reply_parser': [Zapier.parse_reply(text) for text in texts],
        'mail-parser-reply': [every.read(text).latest_reply or '' for text in texts],
    }


class Asked(str):
    """The text that was given to the parser, in place of its answer."""


class Recorder:
    def extract_from_plain(self, text):
        return Asked(text)

    def __getattr__(self, name):
        return lambda *_, **__: None


class Patch:
    @staticmethod
    def object(*_):
        return lambda _: None


class Six:
    text_type = str


def cases(folder):
    """The tests call `eq_(reply, extract_from_plain(text))`: run them with a recorder in place of the parser."""
    with open(f'{folder}/tests/text_quotations_test.py', encoding='utf8') as file:
        source = re.sub(r'^(?:from|import) .*$', '', file.read(), flags=re.M)
    found = []
    name = ''

    def record(first, second, *_):
        for expected, asked in ((first, second), (second, first)):
            if isinstance(asked, Asked) and not isinstance(expected, Asked):
                found.append({'name': name, 'text': str(asked), 'reply': str(expected)})

    names = {'eq_': record, 'quotations': Recorder(), 'patch': Patch, 'six': Six}
    exec(compile(source, 'talon', 'exec'), names)
    for name, test in list(names.items()):
        if name.startswith('test_') and callable(test):
            try:
                test()
            except (AttributeError, NameError, TypeError):
                pass  # a test of another function
    return found


if __name__ == '__main__':
    answer = cases(sys.argv[2]) if sys.argv[1:2] == ['--cases'] else ask(json.load(sys.stdin))
    json.dump(answer, sys.stdout)
