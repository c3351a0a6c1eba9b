// Pages for which a browser is asked what it displays.

const standards = (body: string, head = '') => `<!doctype html><html><head>${head}</head><body>${body}</body></html>`;

const BODIES: Readonly<Record<string, string>> = {
  'plain text': 'seen one two',
  'white space': '<p>seen\n   one\t\ttwo </p>\n\n<p>three</p>',
  'words across elements': 'se<b>en</b> o<i>n</i>e<span> two</span>three',
  blocks: '<div>seen</div><div>one<div>two</div>three</div>four',
  'a span that is a block': 'seen<span style="display:block">one</span>two',
  'a div that is inline': '<div style="display:inline">se</div><div style="display:inline">en</div>',
  'line breaks': 'seen<br>one<br/>two</br>three',
  'a table': '<table><tr><td>seen</td><td>one</td></tr><tr><td>two<td>three</table>four',
  'a table without rows': '<table><td>seen<td>one</table>',
  'text between cells': '<table style="color:white"><tr>seen<td style="color:black">one</td></tr></table>',
  'a hidden table with text between its rows': '<table style="display:none">seen<tr><td>lost</td></tr></table>',
  'cells outside of a table': '<div><td style="display:none">seen</td><tr hidden>one</tr></div>',
  lists: '<ul><li>seen<li>one<ol><li>two</ol></ul><dl><dt>three<dd>four</dl>',
  entities: 'seen s&#101;ven &lt;one&gt; &amp;amp; &eacute;t&eacute; &nbsp;two',
  'preformatted text': '<pre>seen\n  one\n\ntwo</pre>',
  'a heading in a heading': '<h1>seen<h2>one</h1>two',
  'script, style and title': 'seen<script>lost()</script><style>.lost{}</style><title>lost</title>',
  'template and noscript': 'seen<template>lost</template><noscript><p>lost</p></noscript> one',
  comments: 'seen<!-- lost --><!-- lost <b>lost</b> --> one<!lost><?lost?> two<!--[if mso]>lost<![endif]-->',
  'conditional comments that others see': '<!--[if !mso]><!-->seen<!--<![endif]--> one<![if !mso]> two<![endif]>',
  'display:none': '<div style="display:none">lost</div>seen<span style="DISPLAY : NONE !important">lost</span>',
  'display:none with a comment in it': '<div style="display:/* x */none">lost</div>seen',
  'display none and its child block': '<div style="display:none"><div style="display:block">lost</div></div>seen',
  'an invalid display': '<div style="display:nothing">seen</div><div style="display:none;display:foo">lost</div>',
  'later declarations':
    '<div style="display:none;display:block">seen</div><div style="display:block;display:none">lost</div>',
  'important declarations': '<div style="display:none!important;display:block">lost</div>seen',
  'the attribute hidden': '<p hidden>lost</p><p hidden style="display:block">seen</p><p hidden="false">lost</p>',
  'aria-hidden': '<p aria-hidden="true">seen</p>',
  visibility: '<div style="visibility:hidden">lost<span style="visibility:visible">seen</span>lost</div>',
  'visibility:collapse': '<div style="visibility:collapse">lost</div>seen',
  opacity:
    '<div style="opacity:0">lost<b style="opacity:1">lost</b></div>seen<i style="opacity:.5">one</i><i style="opacity:0%">lost</i>',
  'font-size 0': '<div style="font-size:0">lost<span style="font-size:16px">seen</span></div>',
  'font-size 1px': '<div style="font-size:1px">lost</div>seen<p style="font-size:0em">lost</p>',
  'relative sizes':
    '<div style="font-size:10px"><p style="font-size:.1em">lost</p><p style="font-size:1.2em">seen</p></div>',
  'the shorthand font': '<p style="font:0/0 a">lost</p><p style="font:italic 14px/1.5 Arial,sans-serif">seen</p>',
  'points and other units':
    '<p style="font-size:1pt">lost</p><p style="font-size:12pt">seen</p><p style="font-size:.05in">one</p>',
  'white on white':
    '<div style="color:#fff">lost</div>seen<font color="white">lost</font><font color="#FEFEFE">lost</font>',
  'a colour without a hash': '<font color="ffffff">lost</font>seen',
  'white on black': '<div style="background:#000;color:#fff">seen<span style="color:#000">lost</span></div>',
  'white on a dark cell':
    '<table bgcolor="#000000"><tr><td><font color="#ffffff">seen</font></td><td bgcolor="white" style="color:white">lost</td></tr></table>',
  'colours by functions':
    '<p style="color:rgb(255,255,255)">lost</p><p style="color:rgb(255 255 255 / 90%)">lost</p><p style="color:hsl(0,0%,100%)">lost</p><p style="color:hsl(240,100%,50%)">seen</p>',
  'nearly white': '<p style="color:#fafafa">lost</p><p style="color:#ccc">seen</p>',
  'transparent letters':
    '<p style="color:transparent">lost</p><p style="color:rgba(0,0,0,0)">lost</p><p style="color:#0000">lost</p>seen',
  'the colour of a link is its own': '<div style="color:#fff">lost<a href="https://a.example">seen</a></div>',
  'fill colour': '<p style="-webkit-text-fill-color:transparent">lost<b style="color:red">lost</b></p>seen',
  'marked text': '<div style="color:#fff"><mark>seen</mark></div>',
  'an invalid colour': '<p style="color:#ff">seen</p><p style="color:whitey">one</p>',
  'the colour of its parent':
    '<div style="color:#fff"><p style="color:inherit">lost</p><p style="color:#111">seen</p></div>',
  'indented away': '<div style="text-indent:-9999px">lost</div>seen',
  'only the first line is indented': '<div style="text-indent:-9999px">lost<br>seen</div>',
  'indented a little': '<div style="text-indent:-2px">seen</div><div style="text-indent:40px">one</div>',
  'a table in what is indented': '<div style="text-indent:-9999px"><table><tr><td>seen</td></tr></table></div>',
  'off to the left':
    '<div style="position:absolute;left:-9999px">lost</div>seen<div style="position:fixed;left:-1000px">lost</div>',
  'left without a position': '<div style="left:-9999px">seen</div>',
  'off to the top': '<div style="position:absolute;top:-9999px">lost</div>seen',
  'a negative margin': '<div style="margin-left:-9999px">lost</div>seen<div style="margin:0 0 0 -2000px">lost</div>',
  'moved by a transform':
    '<div style="transform:translateX(-9999px)">lost</div><div style="transform:scale(0)">lost</div>seen<div style="transform:scale(1)">one</div>',
  'clipped to nothing':
    '<div style="position:absolute;clip:rect(0 0 0 0)">lost</div>seen<div style="clip:rect(0,0,0,0)">one</div>',
  'a clip path': '<div style="clip-path:inset(50%)">lost</div><div style="clip-path:circle(0)">lost</div>seen',
  'no height':
    '<div style="height:0;overflow:hidden">lost</div><div style="max-height:0px;overflow:hidden">lost</div>seen',
  'no height that flows over': '<div style="height:0">seen</div>',
  'one pixel': '<div style="width:1px;height:1px;overflow:hidden;position:absolute">lost</div>seen',
  'no width': '<div style="width:0;overflow:hidden;white-space:nowrap">lost</div>seen',
  'no height of a span':
    '<span style="height:0;overflow:hidden">seen</span><span style="display:inline-block;height:0;overflow:hidden">lost</span>',
  'no height of a cell': '<table><tr><td style="height:0;overflow:hidden">seen</td></tr></table>',
  'max-height in percent': '<div style="max-height:0%;overflow:hidden">seen</div>',
  'closed details':
    '<details><summary>seen</summary>lost<p>lost</p></details><details open><summary>one</summary>two</details>',
  'a dialog': '<dialog>lost</dialog><dialog open style="position:static">seen</dialog>',
  'a preheader':
    '<div style="display:none;font-size:1px;color:#fff;line-height:1px;max-height:0;max-width:0;opacity:0;overflow:hidden;mso-hide:all">lost &zwnj;&nbsp;&zwnj;</div>seen',
  'mso-hide alone': '<div style="mso-hide:all">seen</div>',
  'paragraphs that end each other': '<p style="display:none">lost<p>seen<div>one</div>',
  'a paragraph and a table': '<p>seen<table><tr><td>one</td></tr></table>',
  'an end tag that is missing': '<div><span style="display:none">lost</div>seen',
  'an end tag of what is not open': 'seen</span></div></p></b> one',
  'an end tag across a block': '<span style="display:none">lost<div>lost</span>lost</div>lost</span>seen',
  'an end tag across a cell': '<table><tr><td><div style="display:none">lost</td><td>seen</div></td></tr></table>',
  'a font that goes on': '<p><font color="white">lost<p>lost</p></font>seen',
  'a bold that ends within a block': '<b style="display:none">lost<div>lost</b></div>seen',
  'a link in a link': '<a href="https://a.example">seen<a href="https://b.example">one</a></a>',
  'list items that end each other': '<ul><li style="display:none">lost<li>seen</ul>',
  'an option': '<div>seen <button>one</button></div>',
  svg: 'seen <svg width="10" height="10"><desc>lost</desc><rect/></svg> one',
  'video and audio': '<video>lost</video><audio>lost</audio>seen',
  'an iframe': '<iframe>lost</iframe>seen',
  'an image': 'seen<img alt="lost" style="display:none">one',
  'a style in quotes': '<div style=\'font-family:"x;y";display:none\'>lost</div>seen',
  'a style with entities': '<div style="display&#58;none">lost</div>seen',
  'an attribute without quotes': '<div style=display:none>lost</div>seen',
  'two style attributes': '<div style="color:red" style="display:none">seen</div>',
};

/** Style sheets: in the head, and the body. */
const SHEETS: Readonly<Record<string, readonly [css: string, body: string]>> = {
  'a class': ['.x{display:none}', '<div class="a x b">lost</div><div class="y">seen</div>'],
  'an id': ['#x{visibility:hidden}', '<div id="x">lost</div>seen'],
  'an element': ['em{display:none}', 'seen<em>lost</em>'],
  'a list of selectors': ['h1, .x ,#y{display:none}', '<h1>lost</h1><p class=x>lost<p id=y>lost<p>seen'],
  'an invalid selector in a list': ['.x, ..y{display:none}', '<p class=x>seen'],
  'descendants and children': [
    '.a .b{display:none} .c>.b{display:none}',
    '<div class=a><i><u class=b>lost</u></i></div><div class=c><i><u class=b>seen</u></i><u class=b>lost</u></div>',
  ],
  'rows that a browser puts into a body': [
    'table>tr{display:none} table>tbody>tr.x{display:none}',
    '<table><tr><td>seen</td></tr><tr class=x><td>lost</td></tr></table>',
  ],
  attributes: [
    '[data-x]{display:none} a[href^="http:"]{display:none}',
    '<p data-x>lost</p><a href="http://a">lost</a><a href="https://a">seen</a>',
  ],
  'what comes first, and next': [
    'p:first-child{display:none} h2+p{display:none}',
    '<p>lost</p><p>seen</p><h2>one</h2><p>lost</p><p>two</p>',
  ],
  not: ['p:not(.x){display:none}', '<p>lost</p><p class=x>seen</p>'],
  'the stronger rule': [
    '#a{display:block} .x{display:none} p.x{display:block}',
    '<p id=a class=x>seen</p><p class=x>one</p><b class=x>lost</b>',
  ],
  'the later rule': [
    '.x{display:none} .x{display:block} .y{display:block} .y{display:none}',
    '<p class=x>seen</p><p class=y>lost</p>',
  ],
  'the attribute before the rule': ['.x{display:none}', '<p class=x style="display:block">seen</p>'],
  'an important rule before the attribute': [
    '.x{display:none !important}',
    '<p class=x style="display:block">lost</p>seen',
  ],
  'media queries': [
    '@media (max-width:600px){.x{display:none}} @media screen and (min-width:601px){.y{display:none}} @media print{.x{display:none}}',
    '<p class=x>seen</p><p class=y>lost</p>',
  ],
  'dark mode': ['@media (prefers-color-scheme:dark){.x{display:none}}', '<p class=x>seen</p>'],
  'comments in a sheet': ['<!-- .x/**/{dis/* */play:block;display:/**/none} -->', '<p class=x>lost</p>seen'],
  'a semicolon in a url': ['.x{background:url(data:image/png;base64,AAAA);display:none}', '<p class=x>lost</p>seen'],
  'a sheet without an end': ['.x{display:none', '<p class=x>lost</p>seen'],
  'colours of the page': [
    'body{background:#111;color:#eee} .x{color:#101010}',
    'seen<p class=x>lost</p><p style="color:#0a0a0a">lost</p>',
  ],
  everything: ['*{color:#fff} b{color:#000}', 'lost<b>seen</b>'],
  'escapes in a selector': ['.a\\:b{display:none}', '<p class="a:b">lost</p>seen'],
};

const QUIRKY: Readonly<Record<string, string>> = {
  'sizes without a unit, in a page without a doctype': '<div style="font-size:1">lost</div>seen',
  'a body that comes late': '<html><body bgcolor="black" text="white">seen<font color="#000">lost</font></body></html>',
  'classes in any case, in a page without a doctype': '<style>.X{display:none}</style><p class="x">lost</p>seen',
  'text after the end': '<html><body><p>seen</p></body></html>one',
};

/**
 * Pages by what they try. `lost` is hidden and all other words are displayed. Not here: sizes relative to the parent's that are
 * below 6 px, which Chromium enlarges and others do not.
 */
export const DISPLAYED: Readonly<Record<string, string>> = {
  ...Object.fromEntries(Object.entries(BODIES).map(([name, body]) => [name, standards(body)])),
  ...Object.fromEntries(
    Object.entries(SHEETS).map(([name, [css, body]]) => [
      `style sheet: ${name}`,
      standards(body, `<style>${css}</style>`),
    ]),
  ),
  ...QUIRKY,
};
