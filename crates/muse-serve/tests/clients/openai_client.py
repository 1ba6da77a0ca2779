"""Checks servers of the embedded model through the official client. The arguments are the URL of one
that answers for any model name, and of one with --strict-model."""

import json
import sys

import openai
from pydantic import BaseModel, Field

MODEL = "muse-nano"
DATE = {"chat_template_kwargs": {"current_date": "2026-08-14"}}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "City name"}},
            "required": ["city"],
        },
    },
}

client, strict = [
    openai.OpenAI(base_url=url, api_key="none", max_retries=0) for url in sys.argv[1:3]
]


def user(text):
    return [{"role": "user", "content": text}]


def ask(messages, **more):
    common = {"model": MODEL, "temperature": 0, "extra_body": DATE}
    return client.chat.completions.create(messages=messages, **common, **more)


def equal(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


def models():
    equal([model.id for model in client.models.list()], [MODEL])
    equal(client.models.retrieve(MODEL).id, MODEL)


def chat():
    answer = ask(user("What is 7 + 8?"))
    choice = answer.choices[0]
    equal(choice.message.content, "7 + 8 = 15.")
    equal(choice.message.reasoning_content, "Add 7 and 8.")
    equal((choice.finish_reason, choice.message.tool_calls), ("stop", None))
    usage = answer.usage
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens


def stream():
    options = {"include_usage": True}
    content, finish, usage = "", None, None
    for chunk in ask(user("What is 7 + 8?"), stream=True, stream_options=options):
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
        usage = chunk.usage or usage
    equal((content, finish), ("7 + 8 = 15.", "stop"))
    assert usage.completion_tokens > 0


def tools():
    messages = user("What is the weather in Rome and Madrid?")
    message = ask(messages, tools=[WEATHER]).choices[0].message
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]
    equal(calls, [("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Madrid"})])
    messages.append(message)
    for call, result in zip(message.tool_calls, ["Rome: 20 degrees, sunny", "Madrid: 25 degrees, windy"]):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    answer = ask(messages, tools=[WEATHER]).choices[0]
    expected = "It is 20 degrees and sunny in Rome and 25 degrees and windy in Madrid."
    equal((answer.message.content, answer.finish_reason), (expected, "stop"))
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in ["required", named]:
        made = ask(user("Weather in Vienna?"), tools=[WEATHER], tool_choice=choice).choices[0]
        equal(json.loads(made.message.tool_calls[0].function.arguments), {"city": "Vienna"})
        equal(made.finish_reason, "tool_calls")
    silent = ask(user("Weather in Vienna?"), tools=[WEATHER], tool_choice="none").choices[0]
    equal((silent.message.tool_calls, silent.finish_reason), (None, "stop"))


def streamed_tools():
    question = user("What is the weather in Rome and Madrid?")
    common = {"model": MODEL, "temperature": 0, "extra_body": DATE, "tools": [WEATHER]}
    with client.chat.completions.stream(messages=question, **common) as events:
        final = events.get_final_completion()
    choice = final.choices[0]
    cities = [json.loads(call.function.arguments)["city"] for call in choice.message.tool_calls]
    equal((cities, choice.finish_reason), (["Rome", "Madrid"], "tool_calls"))
    equal(len({call.id for call in choice.message.tool_calls}), 2)


class User(BaseModel):
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=150)


class GetWeather(BaseModel):
    """Get the weather for a city."""

    city: str


def parse():
    question = user("Give me JSON with keys name and age for Leo, 40.")
    common = {"model": MODEL, "temperature": 0, "extra_body": DATE, "max_completion_tokens": 300}
    for text in [question, user("Hello")]:
        answer = client.chat.completions.parse(messages=text, response_format=User, **common)
        parsed = answer.choices[0].message.parsed
        assert isinstance(parsed, User), parsed
        if text is question:
            equal(parsed, User(name="Leo", age=40))
    tool = openai.pydantic_function_tool(GetWeather, name="get_weather")
    answer = client.chat.completions.parse(
        messages=user("What is the weather in Oslo?"), tools=[tool], **common
    )
    call = answer.choices[0].message.tool_calls[0]
    equal(call.function.parsed_arguments, GetWeather(city="Oslo"))


def raises(kind, status, param, **request):
    try:
        ask(**request)
    except kind as error:
        equal((type(error), error.status_code, error.param), (kind, status, param))
        assert len(error.message) > 20, error.message
    else:
        raise AssertionError(f"{kind.__name__} is not raised")


def names():
    common = {"messages": user("Hello"), "max_tokens": 1}
    equal(client.chat.completions.create(model="other", **common).model, MODEL)
    equal(strict.chat.completions.create(model="muse", **common).model, MODEL)
    try:
        strict.chat.completions.create(model="other", **common)
    except openai.NotFoundError as error:
        equal((error.code, error.param), ("model_not_found", "model"))
    else:
        raise AssertionError("another model is answered for")


def errors():
    hello = user("Hello")
    raises(openai.BadRequestError, 400, "messages[0].role", messages=[{"role": "wizard"}])
    raises(openai.BadRequestError, 400, "max_tokens", messages=hello, max_tokens=-2)
    equal(ask(user("What is 7 + 8?"), max_tokens=-1).choices[0].message.content, "7 + 8 = 15.")
    raises(openai.BadRequestError, 400, "messages", messages=user("no " * 9000))
    schema = {"name": "x", "schema": {"type": "array", "uniqueItems": True}}
    form = {"type": "json_schema", "json_schema": schema}
    raises(openai.BadRequestError, 400, "response_format", messages=hello, response_format=form)
    try:
        client.embeddings.create(model=MODEL, input="x")
    except openai.NotFoundError as error:
        equal(error.code, "unknown_url")
    else:
        raise AssertionError("embeddings are not served")


for check in [models, chat, stream, tools, streamed_tools, parse, names, errors]:
    print(f"openai {openai.__version__}: {check.__name__}", flush=True)
    check()
