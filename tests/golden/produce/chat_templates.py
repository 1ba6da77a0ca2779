"""What transformers renders for snippets of chat templates.   usage: chat_templates.py OUT
Each is compiled and rendered as apply_chat_template does; the clock stands at midnight of DAY."""
import datetime, json, sys
import transformers.utils.chat_template_utils as chat

DAY = datetime.datetime(2026, 11, 2)

class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DAY

chat.datetime = Clock

CONTEXT = {
    "current_date": "2026-11-02",
    "bos_token": "<|begin_of_text|>",
    "add_generation_prompt": True,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Is <b>7</b> odd & prime?\n"},
        {"role": "assistant", "content": "<think>Yes.</think>It is.", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "is_prime", "arguments": {"n": 7, "deep": None, "sure": True}}}]},
        {"role": "tool", "name": "is_prime", "tool_call_id": "c1", "content": "true"},
        {"role": "user", "content": [{"type": "text", "text": "And é 🦭?"}, {"type": "image"}]},
    ],
    "tools": [{"type": "function", "function": {"name": "is_prime", "description": "Prime \"or\" not",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}, "deep": {"type": "array", "items": {"type": "string"}}},
                       "required": ["n"]}}}],
    "words": ["pear", "Apple", "fig", "apple", "kiwi"],
    "numbers": [3, 1, 2, 10],
    "text": "The quick brown fox jumps over the lazy dog",
    "table": {"b": 2, "a": 1, "C": 3},
    "rows": [{"k": "x", "v": 1, "ok": True}, {"k": "y", "v": 2, "ok": False}, {"k": "x", "v": 3, "ok": True}],
    "none": None, "yes": True, "no": False, "empty": "", "nothing": [], "pi": 3.14159, "big": 12345678901234567890, "tiny": 1e-07,
}

SNIPPETS = r'''
{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}
{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}<{{ m.role }}<{{ loop.nextitem.role if loop.nextitem else '-' }} {% endfor %}
{% for m in messages %}{% if loop.previtem is undefined or loop.previtem.role != m.role %}{{ m.role }} {% endif %}{% endfor %}
{% for m in messages %}{{ loop.cycle('a', 'b') }}{% endfor %}
{% for r in rows %}{% if loop.changed(r.ok) %}{{ r.v }} {% endif %}{% endfor %}
{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %}
{% for m in nothing %}x{% else %}empty{% endfor %}
{% for k, v in table.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in table %}{{ k }}{% endfor %}
{% for k, v in table|dictsort %}{{ k }}={{ v }};{% endfor %}
{% for k, v in table|items %}{{ k }}={{ v }};{% endfor %}
{% for c in 'abc' %}{{ c }}-{% endfor %}
{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }} {% endfor %}
{% for m in messages %}{% if m.role == 'tool' %}{% break %}{% endif %}{{ m.role }} {% endfor %}
{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role }} {% endfor %}
{% for m in messages[1:] %}{{ m.role }} {% endfor %}
{% for m in messages[::-1] %}{{ m.role }} {% endfor %}
{% for m in messages[:-1] %}{{ m.role }} {% endfor %}
{{ messages[-1].role }} {{ messages[0]['content'] }} {{ messages[-1]['content'][0]['text'] }}
{% for n in range(3) %}{{ n }}{% endfor %}{% for n in range(5, 0, -2) %}{{ n }}{% endfor %}
{% set ns = namespace(found=false, count=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% set ns.count = ns.count + 1 %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.count }}
{% set x = 1 %}{% for n in numbers %}{% set x = n %}{% endfor %}{{ x }}
{% set block %}a{{ 1 + 1 }}b{% endset %}[{{ block }}]
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}
{% macro greet(name, mark='!') %}Hi {{ name }}{{ mark }}{% endmacro %}{{ greet('Bo') }}{{ greet('Al', mark='?') }}
{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in{% endcall %}
{% macro all() %}{{ varargs|length }}{{ kwargs|length }}{% endmacro %}{{ all() }}
{% filter upper %}a{{ 'b' }}{% endfilter %}
{% generation %}answer{% endgeneration %}
{% for m in messages %}{% if m.role == 'assistant' %}{%- generation -%}  {{ m.content }}  {%- endgeneration -%}{% endif %}{% endfor %}
{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}
{% raw %}{{ not }} {% generation %}{% endraw %}
{# {% generation %} #}x
{{ messages is sequence }} {{ table is sequence }} {{ text is sequence }} {{ 5 is sequence }} {{ none is sequence }}
{{ messages is iterable }} {{ table is iterable }} {{ text is iterable }} {{ 5 is iterable }} {{ none is iterable }}
{{ messages is mapping }} {{ table is mapping }} {{ text is mapping }}
{{ text is string }} {{ 5 is string }} {{ none is none }} {{ none is string }} {{ nope is defined }} {{ nope is undefined }} {{ none is defined }}
{{ 5 is number }} {{ 5.0 is number }} {{ true is number }} {{ 5 is integer }} {{ 5.0 is integer }} {{ true is integer }} {{ 5.0 is float }} {{ true is boolean }} {{ 1 is boolean }}
{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ none is false }}
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }}
{{ 5 is eq 5 }} {{ 5 is ne 5 }} {{ 5 is gt 4 }} {{ 5 is ge 5 }} {{ 5 is lt 4 }} {{ 5 is le 5 }} {{ 5 is equalto 5 }} {{ 5 is sameas 5 }}
{{ 'a' is in 'abc' }} {{ 'a' is in ['b'] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'a' is not in 'xyz' }}
{{ yes is callable }} {{ range is callable }} {{ 'x' is filter }} {{ 'upper' is filter }} {{ 'odd' is test }}
{{ messages|tojson }}
{{ tools|tojson }}
{{ tools[0]|tojson(indent=2) }}
{{ table|tojson(sort_keys=true) }}
{{ table|tojson(indent=4, sort_keys=true) }}
{{ table|tojson(separators=(',', ':')) }}
{{ table|tojson(separators=[',', ': '], indent=1) }}
{{ messages[-1].content|tojson(ensure_ascii=true) }}
{{ messages[-1].content|tojson(ensure_ascii=false) }}
{{ messages[-1].content|tojson(true) }}
{{ [1, 2.0, 0.1, 1e16, 1e-07, none, true, false, 'a"\\\n\t/<>&\'']|tojson }}
{{ {'a': {}, 'b': [], 'c': [[]]}|tojson(indent=2) }}
{{ {1: 2, none: 3, true: 4}|tojson }}
{{ 'é🦭\x7f\x01'|tojson(ensure_ascii=true) }}
{{ 'x'|tojson(indent='--') }} {{ [1]|tojson(indent='--') }} {{ [1]|tojson(indent=0) }}
{{ big|tojson }} {{ pi|tojson }} {{ none|tojson }}
{{ (1, 2)|tojson }} {{ range(3)|list|tojson }}
{{ 'b=%s' % 'x' }} {{ '%d items' % 5 }} {{ '%05.2f|%-6s|%6s|' % (pi, 'ab', 'cd') }}
{{ '%s and %s' % (none, true) }} {{ '%r' % 'a' }} {{ '%x %X %o' % (255, 255, 8) }} {{ '%e' % 12345.678 }} {{ '%%' % () }}
{{ '%(a)s-%(b)d' % {'a': 'x', 'b': 7} }} {{ '%s' % [1, 'a'] }} {{ '%+d % d' % (5, 5) }} {{ '%5.1f' % 2 }} {{ '%c' % 'x' }} {{ '%i' % 3.9 }}
{{ 7 % 3 }} {{ -7 % 3 }} {{ 7.5 % 2 }} {{ 10 - 7 % 4 * 2 }} {{ (1 + 6) % (2 + 2) }}
{{ '%s' % text[:3] }} {{ ('%s' ~ '!') % 'a' }} {{ '%s' % 'a' ~ 'b' }} {{ '%s' % ('a' + 'b') | upper }}
{{ "%s %s" | format('a', 5) }} {{ "%(x)s" | format(x='y') }} {{ "%.3f" | format(pi) }}
{{ 1 + 2 * 3 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** -1 }} {{ 5 - 2.0 }} {{ 'ab' * 2 }} {{ [1] * 2 }} {{ [1] + [2] }}
{{ 1 + 2 - 3 + 4 }} {{ 'a' + 'b' + 'c' }} {{ (1, 2) + (3,) }} {{ [1] + [2] + [] }} {{ true + 1 }} {{ 1.5 + 1 }} {{ -1 + -2 }} {{ 2 * 3 + 4 * 5 }} {{ 1 + (2 + 3) * 4 }} {{ big + 1 }} {{ 1e5 + 1 }}
{{ ([1] + [2])|length + 1 }} {{ 'a' + 'b'|upper }} {{ ('a' + 'b')|upper }} {{ words[0] + words[1][0:2] + '!' }} {{ 'x' + ('y' if yes else 'z') + 'w' }} {{ '<' + messages[0]['role'] + '>' + '\n' }}
{% set a = 'x' + 'y' %}{{ a }}{% if 1 + 1 == 2 and 'a' + 'b' in 'abc' %}yes{% endif %}{% for i in range(1 + 1) %}{{ loop.index + 1 }}{% endfor %}{{ {'k' + '1': 1 + 1} }}{{ words[0 + 1] }}{{ words[1 + 1:] }}
{{ [1] + (2,) }}
{{ [1] + 'a' }}
{{ 1 == 1.0 }} {{ '1' == 1 }} {{ 1 < 2 < 3 }} {{ 'a' < 'b' }} {{ not none }} {{ none or 'x' }} {{ 'a' and 'b' }} {{ '' or [] or 0 }} {{ 1 if no }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'b'] }}
{{ [1, 'a', none, true, 1.5, [2], {'k': 'v'}] }} {{ {'a': [none, "it's"], 'b': 'say "x"'} }} {{ (1, 2) }} {{ (1,) }} {{ () }}
{{ ["a'b", 'a"b', 'a\'b"c', 'a\nb\t\\', 'é🦭'] }}
{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 0.1 }} {{ tiny }} {{ -0.0 }} {{ big }} {{ true }} {{ none }} {{ 1e100 }} {{ 3.0e5 }}
{{ nope }}|{{ none }}|{{ empty }}|{{ nothing }}
{{ text|truncate(20) }}|{{ text|truncate(20, true) }}|{{ text|truncate(20, false, '..') }}|{{ text|truncate(40) }}|{{ text|truncate(40, leeway=0) }}|{{ 'short'|truncate(3, true, '') }}
{{ text|truncate }} {{ 'abcdefghij'|truncate(length=5, killwords=true, end='', leeway=0) }} {{ 'one two'|truncate(4, end='~', leeway=0) }}
{{ text|wordcount }} {{ 'a-b c_d  é'|wordcount }} {{ ''|wordcount }}
{{ text|length }} {{ text|count }} {{ words|length }} {{ table|length }} {{ 'é🦭'|length }}
{{ text|upper }} {{ text|lower }} {{ text|title }} {{ text|capitalize }} {{ "it's o'neil-x"|title }}
{{ '  x '|trim }}| {{ 'xxaxx'|trim('x') }} {{ 'abc'|replace('b', 'd') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'abc'|reverse }} {{ words|reverse|list }}
{{ words|join(', ') }} {{ words|join }} {{ rows|join('-', attribute='k') }} {{ [1, none, true]|join(',') }}
{{ words|sort }} {{ words|sort(reverse=true) }} {{ words|sort(case_sensitive=true) }} {{ numbers|sort }} {{ rows|sort(attribute='v', reverse=true)|map(attribute='v')|list }}
{{ words|unique|list }} {{ words|unique(case_sensitive=true)|list }} {{ words|first }} {{ words|last }} {{ numbers|min }} {{ numbers|max }} {{ numbers|sum }} {{ rows|sum(attribute='v') }} {{ rows|sum('v', 10) }}
{{ words|map('upper')|list }} {{ words|map('length')|list }} {{ rows|map(attribute='k')|join }} {{ rows|map(attribute='z', default='-')|join }} {{ numbers|map('string')|list }}
{{ rows|selectattr('ok')|map(attribute='v')|list }} {{ rows|rejectattr('ok')|map(attribute='v')|list }} {{ rows|selectattr('k', 'equalto', 'x')|map(attribute='v')|list }} {{ rows|selectattr('v', 'gt', 1)|list|length }}
{{ numbers|select('odd')|list }} {{ numbers|reject('odd')|list }} {{ numbers|select('gt', 2)|list }} {{ ['', 'a', none]|select|list }}
{% for g in rows|groupby('k') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}{% for k, l in rows|groupby('k') %}{{ k }}{{ l|map(attribute='v')|list }}{% endfor %}
{{ numbers|batch(2)|list }} {{ numbers|batch(3, 0)|list }} {{ numbers|slice(2)|list }}
{{ nope|default('d') }} {{ none|default('d') }} {{ none|default('d', true) }} {{ ''|d('e', true) }} {{ 'v'|default('d') }} {{ nope.x|default('q') if nope is defined else 'u' }}
{{ '5'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ '1f'|int(base=16) }} {{ 3.9|int }} {{ '3.5'|float }} {{ 'x'|float(1.5) }} {{ 5|float }} {{ 5|string ~ 'a' }} {{ true|string }} {{ none|string }} {{ [1, 'a']|string }}
{{ -3|abs }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(0, 'floor') }} {{ 42.55|round|int }}
{{ 'a\nb\n\nc'|indent }}| {{ 'a\nb'|indent(2, true) }}| {{ 'a\n\nb'|indent(2, blank=true) }}| {{ 'a\nb'|indent('>') }}
{{ '<a>&"\''|escape }} {{ '<a>'|e }} {{ '<a>'|safe }} {{ '<a>'|escape|escape }}
{{ 'abc'|list }} {{ table|list }} {{ (1, 2)|list }} {{ 'abc'|first }} {{ 'abc'|last }}
{{ text|center(50) }}| {{ 'x'|center(4) }}| {{ '<b>a</b>  c'|striptags }} {{ 'a b&c/é'|urlencode }} {{ {'a': 1, 'b': 'x y'}|urlencode }}
{{ 1000|filesizeformat }} {{ 1500000|filesizeformat }} {{ 1024|filesizeformat(true) }} {{ 1|filesizeformat }}
{{ rows[0]|attr('k') }}|{{ table|attr('a') }}
{{ 'A b'.upper() }} {{ 'A b'.lower() }} {{ 'a b'.title() }} {{ 'a B'.capitalize() }} {{ 'aB'.swapcase() }} {{ 'ß'.casefold() }} {{ "they're x2y"|title }} {{ "they're x2y".title() }}
{{ '  x  '.strip() }}|{{ '  x  '.lstrip() }}|{{ '  x  '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.lstrip('ab') }}|{{ 'abcba'.rstrip('ab') }}|{{ '\n a\t'.strip() }}
{{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ 'a b c'.split(maxsplit=1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ 'abc'.split('</think>')[-1] }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'a\nb\r\nc'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }} {{ 'a\nb\n'.splitlines(keepends=false) }} {{ 'a\x0bb\x0cc\u2028d'.splitlines() }}
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }}
{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('x') }} {{ 'éab'.find('b') }} {{ 'abcabc'.index('c') }} {{ 'abcabc'.rindex('c') }} {{ 'abcabc'.find('c', 3) }} {{ 'abcabc'.find('c', 3, 5) }} {{ 'abcabc'.count('c') }} {{ 'aaaa'.count('aa') }} {{ 'abc'.count('') }}
{{ 'abc'.startswith('a') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith('c') }} {{ 'abc'.endswith(('c', 'x')) }} {{ 'abc'.endswith('b', 0, 2) }}
{{ 'abc'.replace('b', 'x') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removeprefix('x') }}
{{ '5'.zfill(3) }} {{ '-5'.zfill(4) }} {{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '*') }}|{{ 'a'.center(4, '*') }}|{{ 'ab'.center(5) }}|{{ 'a\tb'.expandtabs(4) }}
{{ '-'.join(words) }} {{ ', '.join(['a']) }} {{ ''.join([]) }} {{ 'x'.join('abc') }}
{{ '{} and {}'.format('a', 1) }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=5) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}'.format('a', 'b', 'c', 42, pi, 1234567) }} {{ '{{}}'.format() }} {{ '{!r}'.format('a') }}
{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '123'.isdigit() }} {{ '12.3'.isnumeric() }} {{ '١'.isdecimal() }} {{ ' '.isspace() }} {{ ''.isspace() }} {{ 'Ab Cd'.istitle() }} {{ 'abc'.islower() }} {{ 'ABC'.isupper() }} {{ 'a_1'.isidentifier() }} {{ 'é'.isascii() }} {{ '²'.isdigit() }} {{ '²'.isdecimal() }} {{ 'a1'.isupper() }}
{{ words.index('fig') }} {{ words.count('apple') }} {{ (1, 2, 1).count(1) }} {{ (1, 2).index(2) }}
{{ table.keys()|list }} {{ table.values()|list }} {{ table.items()|list }} {{ table.get('a') }} {{ table.get('x') }} {{ table.get('x', 5) }} {{ table.copy() }}
{% for k, v in tools[0].function.parameters.properties.items() %}{{ k }}:{{ v.type }} {% endfor %}
{% set schema = tools[0].function.parameters.properties.deep %}{{ schema['items'].type }} {% for k, v in schema.items() %}{{ k }} {% endfor %}
{% set d = {'items': [1], 'keys': 2, 'get': 3} %}{{ d['items'] }} {{ d.get('keys') }} {{ d.items()|list|length }}
{{ {'a': 1}.a }} {{ {'a': 1}['a'] }} {{ {'a': {'b': 2}}.a.b }} {{ {'a': 1}.b is defined }} {{ {'a': 1}['b'] is defined }}
{{ 'a' in table }} {{ 'z' in table }} {{ 'quick' in text }} {{ 3 in numbers }} {{ 9 not in numbers }} {{ 'type' in tools[0] }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a': 1}, b=2).b }}
{{ text[0] }} {{ text[-3:] }} {{ text[4:9] }} {{ text[::-1][:3] }} {{ words[1:3] }} {{ (1, 2, 3)[1:] }} {{ words[5:] }}
{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %B %Y') }} {{ strftime_now('%b %d, %y') }} {{ strftime_now('%A %a %j') }} {{ strftime_now('%-d/%-m') }} {{ strftime_now('%e') }}
{{ strftime_now('%H:%M:%S %p %I') }} {{ strftime_now('%U %W %V %G %u %w') }} {{ strftime_now('%c|%x|%X|%D|%F|%T|%R') }} {{ strftime_now('%%|%n|%t|%f|%z|%Z|%C|%h|%s') }}
{{ raise_exception('no') }}
{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set loop_messages = messages[1:] %}{% else %}{% set loop_messages = messages %}{% endif %}{{ system }}{{ loop_messages|length }}
{% for message in messages %}{%- if message.content is string -%}{{- '<|' + message['role'] + '|>' + message['content'] | trim + '\n' -}}{%- endif -%}{% endfor %}
{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v if v is string else v|tojson }}{% if not loop.last %}, {% endif %}{% endfor %}){% endfor %}{% endif %}{% endfor %}
{% for m in messages %}{% if m.role == 'assistant' and '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip('\n') }}|{{ m.content.split('</think>')[0].split('<think>')[-1].strip('\n') }}{% endif %}{% endfor %}
{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}{%- for m in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step and m.role == 'user' and m.content is string and not (m.content.startswith('<tool>') and m.content.endswith('</tool>')) %}{%- set ns.multi_step = false %}{%- set ns.last = index %}{%- endif %}{%- endfor %}{{ ns.last }}
{% if tools is defined and tools and tools is not none %}{{ tools|map(attribute='function')|map(attribute='name')|join(', ') }}{% endif %}
{% for m in messages %}{% if m.content is not string and m.content is iterable %}{% for p in m.content %}{{ p.type }}{{ p['text'] if 'text' in p }} {% endfor %}{% endif %}{% endfor %}
{% set m = messages|selectattr('role', 'equalto', 'system')|list %}{{ m[0].content if m else 'none' }} {{ (messages|rejectattr('role', 'in', ['system', 'tool'])|list)|length }}
{{ (messages|last)['role'] }} {{ (messages|first).content }} {{ messages|map(attribute='role')|unique|list|length }}
{% set roles = messages|map(attribute='role')|list %}{{ roles }} {{ roles|join(' ') }} {{ 'user' in roles }}
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ add_generation_prompt }}
{% if a is not defined %}{% set a = 5 %}{% endif %}{{ a }}
{%- if true %}  x  {%- endif %}  y
  {% if true %}
    line
  {% endif %}
end
  {%+ if true %}x{%+ endif %}

a {{- ' b ' -}} c
{{ "a" "b" }} {{ 'tab\there' }} {{ 'nul\\n' }} {{ "\u00e9\x41" }} {{ 'a\
b' }}
{{ '%*d' % (5, 42) }} {{ '%.2s' % 'abc' }} {{ '%g %G' % (0.00001, 1e20) }} {{ '%#x' % 255 }} {{ '%d' % true }} {{ '%s%%' % 5 }}
{{ '{0[a]} {1.b}'.format({'a': 1}, {'b': 2}) if false else 'skipped' }} {{ '{0[0]}'.format(['x']) }} {{ '{!s:>4}'.format(none) }} {{ '{:+}'.format(5) }} {{ '{:x}'.format(255) }} {{ '{:e}'.format(12345.678) }} {{ '{:%}'.format(0.5) }}
{{ '{' }} {{ '}' }} {{ '{{' }} {{ '%' }}
{{ '{}'.format() }}
{{ '{x}'.format(y=1) }}
{{ '%(a)s' % {'b': 1} }}
{{ '%q' % 1 }}
{{ -5 }} {{ - 5 }} {{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }}
{{ true and not false or none }} {{ (1, 2) == (1, 2) }} {{ [1, 2] == [1, 2] }} {{ {'a': 1} == {'a': 1} }} {{ None }} {{ True }} {{ False }}
{{ 'yes' if yes else 'no' }} {{ 'x' if nope else 'y' if no else 'z' }}
{{ words|select('in', ['fig'])|list }} {{ words|map('replace', 'p', 'q')|list }} {{ words|map('truncate', 3, true, '')|list }}
{{ [3, 1]|sort|first }} {{ ([1, 2] + [3])|last }} {{ [[1, 2], [3]]|sum(start=[]) }}
{{ joiner is defined }} {% set j = joiner(',') %}{{ j() }}a{{ j() }}b {% set c = cycler('x', 'y') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}
{% do words %}
{{ nope.x }}
{{ none.x }}
{{ nope['x'] }}
{{ messages[99] }}|{{ table.zzz }}|
{{ messages[99].role }}
{{ 1 / 0 }}
{{ 'a' + 1 }}
{{ none + 'a' }}
{{ words.append('x') }}
{{ table.update({'z': 1}) }}
{{ 'abc'.index('x') }}
{{ nope|tojson }}
{{ namespace|tojson }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ 'x'|nofilter }}
{{ 'x' is notest }}
{{ nofunction() }}
{{ 'x'.nomethod() }}
{{ table.nomethod() }}
{% notag %}
{% if %}
{{ 'x' }
{% for x in 5 %}{% endfor %}
{{ ''.join([1]) }}
{{ range(100001)|length }}
{{ numbers[1.5] }}
{{ 'x' * 3 ~ 'y' * 2 }} {{ 2 * 'ab' }}
{{ text.split()|map('first')|join }} {{ text.split()|map('upper')|join(' ') }} {{ text.split(' ')[:2]|join('_') }}
{{ 'a'.__class__ }}
{% set x %}{% for i in [1, 2] %}{{ i }}{% endfor %}{% endset %}{{ x|length }}{{ x }}
{% macro field(name, value=none, quote=true) -%}{{ name }}={% if value is none %}null{% elif quote %}"{{ value }}"{% else %}{{ value }}{% endif %}{%- endmacro %}{{ field('a') }} {{ field('b', 5, quote=false) }} {{ field(name='c', value='d') }}
{% macro rec(n) %}{{ n }}{% if n > 0 %}{{ rec(n - 1) }}{% endif %}{% endmacro %}{{ rec(3) }}
{% for item in [[1, [2, [3]]]] recursive %}{% if item is iterable and item is not string %}[{{ loop(item) }}]{% else %}{{ item }}{% endif %}{% endfor %}
'''.strip('\n')

MULTILINE = [
    "  {% if true %}\n    line\n  {% endif %}\nend",
    "  {%+ if true %}x{%+ endif %}\n",
    "{%- for m in messages %}\n    {%- if m.role == 'user' %}\n{{ m.role }}\n    {%- endif %}\n{%- endfor %}\n",
    "a\n\n{% set x = 1 %}\n\nb{# note #}\n  {# note #}\nc\n",
    "{{ 'x' }}\n",
    "{% if no %}\nx\n{% else %}\ny\n{% endif %}\nz",
    "\n{% generation %}\nx\n{% endgeneration %}\ny",
]

def snippets():
    skip = {"  {% if true %}", "    line", "  {% endif %}", "end", "  {%+ if true %}x{%+ endif %}", "", "b' }}"}
    for line in SNIPPETS.split("\n"):
        if line not in skip and not line.endswith("{{ 'a\\"):
            yield line
    yield '{{ "a" "b" }} {{ \'tab\\there\' }} {{ \'nul\\\\n\' }} {{ "\\u00e9\\x41" }}'
    yield from MULTILINE

def run(template):
    try:
        return {"template": template, "text": chat._compile_jinja_template(template).render(**CONTEXT)}
    except Exception as error:
        return {"template": template, "error": type(error).__name__}

if __name__ == "__main__":
    cases = [run(template) for template in snippets()]
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        out.write('{"context": ' + json.dumps(CONTEXT, ensure_ascii=False) + ',\n"cases": [\n')
        out.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]}\n")
    print(len(cases), "snippets,", sum("error" in case for case in cases), "of them errors")
