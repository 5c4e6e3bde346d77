// chat_templates.h: the formats of chats and the templates that have them, made by chat_templates.py. chat.h says what
// the fields mean. A model behind a digest is one whose template was compared.
#ifndef CHAT_TEMPLATES_H
#define CHAT_TEMPLATES_H

#include "examples/lib/chat.h"

static const chat_format chat_format_list[] = {
    {.name = "llama3",
     .alone = CHAT_BOS "<|start_header_id|>user<|end_header_id|>\n\n",
     .system = CHAT_BOS "<|start_header_id|>system<|end_header_id|>\n\n",
     .then = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .reply = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .next = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .trim = {3, 3, 3}},
    {.name = "llama3.1",
     .alone = CHAT_BOS
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: " CHAT_DATE
     "\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .system = CHAT_BOS
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: " CHAT_DATE
     "\n\n",
     .then = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .reply = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .next = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .date = "26 Jul 2024",
     .trim = {3, 3, 3}},
    {.name = "llama3.2",
     .alone = CHAT_BOS
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: " CHAT_DATE
     "\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .system = CHAT_BOS
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: " CHAT_DATE
     "\n\n",
     .then = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .reply = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .next = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .date = "26 Jul 2024",
     .form = "%d %b %Y",
     .trim = {3, 3, 3}},
    {.name = "llama2",
     .alone = CHAT_BOS "[INST] ",
     .system = CHAT_BOS "[INST] <<SYS>>\n",
     .then = "\n<</SYS>>\n\n",
     .reply = " [/INST] ",
     .next = " " CHAT_EOS CHAT_BOS "[INST] ",
     .answer = " [/INST]",
     .trim = {0, 3, 3},
     .together = 1,
     .blank = 2,
     .plain = 1},
    {.name = "chatml",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "chatml-bos",
     .alone = CHAT_BOS "<|im_start|>user\n",
     .system = CHAT_BOS "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "qwen2",
     .alone = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "qwen2.5",
     .alone = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
              "assistant.<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "qwen3",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .cut = 3,
     .where = 2,
     .words = {"<tool_response>"}},
    {.name = "qwen3-thinking",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n<think>\n",
     .cut = 3,
     .where = 2,
     .words = {"<tool_response>"}},
    {.name = "mistral-0.1",
     .alone = CHAT_BOS "[INST] ",
     .reply = " [/INST]",
     .next = CHAT_EOS " [INST] ",
     .answer = " [/INST]",
     .plain = 1},
    {.name = "mistral-0.2",
     .alone = CHAT_BOS "[INST] ",
     .reply = " [/INST]",
     .next = CHAT_EOS "[INST] ",
     .answer = " [/INST]",
     .plain = 1},
    {.name = "mistral-0.3",
     .alone = CHAT_BOS "[INST] ",
     .system = CHAT_BOS "[INST] ",
     .then = "\n\n",
     .reply = "[/INST] ",
     .next = CHAT_EOS "[INST] ",
     .answer = "[/INST]",
     .trim = {0, 0, 3},
     .late = 1},
    {.name = "mistral-nemo",
     .alone = CHAT_BOS "[INST]",
     .system = CHAT_BOS "[INST]",
     .then = "\n\n",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST]",
     .answer = "[/INST]",
     .late = 1},
    {.name = "zephyr",
     .alone = "<|user|>\n",
     .system = "<|system|>\n",
     .then = CHAT_EOS "\n<|user|>\n",
     .reply = CHAT_EOS "\n<|assistant|>\n",
     .next = CHAT_EOS "\n<|user|>\n",
     .answer = CHAT_EOS "\n<|assistant|>\n",
     .plain = 1},
    {.name = "phi3",
     .alone = CHAT_BOS "<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n",
     .empty = 2},
    {.name = "phi3.5",
     .alone = "<|user|>\n",
     .system = "<|system|>\n",
     .then = "<|end|>\n<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n",
     .empty = 1},
    {.name = "phi4",
     .alone = "<|im_start|>user<|im_sep|>",
     .system = "<|im_start|>system<|im_sep|>",
     .then = "<|im_end|><|im_start|>user<|im_sep|>",
     .reply = "<|im_end|><|im_start|>assistant<|im_sep|>",
     .next = "<|im_end|><|im_start|>user<|im_sep|>",
     .answer = "<|im_end|><|im_start|>assistant<|im_sep|>"},
    {.name = "granite3",
     .alone = "<|start_of_role|>system<|end_of_role|>Knowledge Cutoff Date: April 2024. Today's Date: " CHAT_DATE
              ". You are Granite, developed by IBM. You are a helpful AI "
              "assistant.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .system = "<|start_of_role|>system<|end_of_role|>",
     .then = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .reply = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .next = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .answer = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .form = "%B %d, %Y"},
    {.name = "smollm2",
     .alone = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
              "Face<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "smollm3",
     .alone =
         "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: " CHAT_DATE
         "\nReasoning Mode: /think\n\n## Custom Instructions\n\nYou are a helpful AI assistant named SmolLM, trained "
         "by Hugging Face. Your role as an assistant involves thoroughly exploring questions through a systematic "
         "thinking process before providing the final precise and accurate solutions. This requires engaging in a "
         "comprehensive cycle of analysis, summarizing, exploration, reassessment, reflection, backtracking, and "
         "iteration to develop well-considered thinking process. Please structure your response into two main "
         "sections: Thought and Solution using the specified format: <think> Thought section </think> Solution "
         "section. In the Thought section, detail your reasoning process in steps. Each step should include detailed "
         "considerations such as analysing questions, summarizing relevant findings, brainstorming new ideas, "
         "verifying the accuracy of the current steps, refining any errors, and revisiting previous steps. In the "
         "Solution section, based on various attempts, explorations, and reflections from the Thought section, "
         "systematically present the final solution that you deem correct. The Solution section should be logical, "
         "accurate, and concise and detail necessary steps needed to reach the conclusion.\n\n<|im_start|>user\n",
     .system = "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: " CHAT_DATE
               "\nReasoning Mode: /think\n\n## Custom Instructions\n\n",
     .then = "\n\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .form = "%d %B %Y",
     .trim = {2, 0, 0},
     .empty = 2,
     .cut = 4,
     .where = 1,
     .words = {"/think", "/no_think", "/system_override"}},
    {.name = "seed-oss",
     .alone = "<seed:bos>user\n",
     .system = "<seed:bos>system\n",
     .then = "<seed:eos><seed:bos>user\n",
     .reply = "<seed:eos><seed:bos>assistant\n",
     .next = "<seed:eos><seed:bos>user\n",
     .answer = "<seed:eos><seed:bos>assistant\n",
     .trim = {0, 0, 3},
     .blank = 6},
    {.name = "deepseek-r1",
     .alone = CHAT_BOS "<｜User｜>",
     .system = CHAT_BOS,
     .then = "<｜User｜>",
     .reply = "<｜Assistant｜>",
     .next = "<｜end▁of▁sentence｜><｜User｜>",
     .answer = "<｜Assistant｜><think>\n</think>",
     .cut = 1},
    {.name = "text", .alone = CHAT_BOS, .system = CHAT_BOS, .then = " ", .reply = "", .next = " ", .answer = ""},
    {.name = "alphamonarch-7b",
     .alone = CHAT_BOS "user\n",
     .system = CHAT_BOS "system\n",
     .then = CHAT_EOS "\n" CHAT_BOS "user\n",
     .reply = CHAT_EOS "\n" CHAT_BOS "assistant\n",
     .next = CHAT_EOS "\n" CHAT_BOS "user\n",
     .answer = CHAT_EOS "\n" CHAT_BOS "assistant\n"},
    {.name = "apriel-1.5",
     .alone = CHAT_BOS "<|system|>\nYou are a thoughtful and systematic AI assistant built by ServiceNow Language "
                       "Models (SLAM) lab. Before providing an answer, analyze the problem carefully and present your "
                       "reasoning step by step. After explaining your thought process, provide the final solution in "
                       "the following format: [BEGIN FINAL RESPONSE] ... [END FINAL RESPONSE].\n<|end|>\n<|user|>\n",
     .system = CHAT_BOS "<|system|>\nYou are a thoughtful and systematic AI assistant built by ServiceNow Language "
                        "Models (SLAM) lab. Before providing an answer, analyze the problem carefully and present your "
                        "reasoning step by step. After explaining your thought process, provide the final solution in "
                        "the following format: [BEGIN FINAL RESPONSE] ... [END FINAL RESPONSE].",
     .then = "\n<|end|>\n<|user|>\n",
     .reply = "\n<|end|>\n<|assistant|>\n",
     .next = "\n<|end|>\n" CHAT_EOS "<|user|>\n",
     .answer = "\n<|end|>\n<|assistant|>\n",
     .plain = 1},
    {.name = "bielik-11b-v3.0-instruct",
     .alone = CHAT_BOS "<|im_start|>user\n",
     .system = CHAT_BOS "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .trim = {0, 0, 1},
     .blank = 6,
     .empty = 1,
     .where = 4,
     .words = {"<think>"}},
    {.name = "codellama-70b-instruct",
     .alone = "<s>Source: user\n\n ",
     .system = "<s>Source: system\n\n ",
     .then = " <step> Source: user\n\n ",
     .reply = " <step> Source: assistant\n\n ",
     .next = " <step> Source: user\n\n ",
     .answer = " <step> Source: assistant\nDestination: user\n\n ",
     .trim = {3, 3, 3}},
    {.name = "deepseek-r1-v2",
     .alone = CHAT_BOS "<｜User｜>",
     .system = CHAT_BOS,
     .then = "<｜User｜>",
     .reply = "<｜Assistant｜>",
     .next = "<｜end▁of▁sentence｜><｜User｜>",
     .answer = "<｜Assistant｜>",
     .cut = 1},
    {.name = "deepseek-r1-distill",
     .alone = CHAT_BOS "<｜User｜>",
     .system = CHAT_BOS,
     .then = "<｜User｜>",
     .reply = "            <｜Assistant｜>",
     .next = "<｜end▁of▁sentence｜><｜User｜>",
     .answer = "<｜Assistant｜><think>\n"},
    {.name = "deepseek-r1-distill-v2",
     .alone = CHAT_BOS "<｜User｜>",
     .system = CHAT_BOS,
     .then = "<｜User｜>",
     .reply = "<｜Assistant｜>",
     .next = "<｜end▁of▁sentence｜><｜User｜>",
     .answer = "<｜Assistant｜><think>\n",
     .cut = 1},
    {.name = "ministral-3-14b-reasoning-2512",
     .alone = CHAT_BOS
     "[SYSTEM_PROMPT]# HOW YOU SHOULD THINK AND ANSWER\n\nFirst draft your thinking process (inner monologue) until "
     "you arrive at a response. Format your response using Markdown, and use LaTeX for any mathematical equations. "
     "Write both your thoughts and the response in the same language as the input.\n\nYour thinking process must "
     "follow the template below:[THINK]Your thoughts or/and draft, like working through an exercise on scratch paper. "
     "Be as casual and as long as you want until you are confident to generate the response to the user.[/THINK]Here, "
     "provide a self-contained response.[/SYSTEM_PROMPT][INST]",
     .system = CHAT_BOS "[SYSTEM_PROMPT]",
     .then = "[/SYSTEM_PROMPT][INST]",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST]",
     .answer = "[/INST]",
     .blank = 6},
    {.name = "mistral-7b-instruct-v0.2",
     .alone = CHAT_BOS " [INST] ",
     .system = CHAT_BOS " [INST] ",
     .then = "\n\n",
     .reply = " [/INST] ",
     .next = CHAT_EOS " [INST] ",
     .answer = " [/INST]",
     .plain = 1},
    {.name = "mistral-7b-instruct-v0.3",
     .alone = CHAT_BOS " [INST] ",
     .reply = " [/INST] ",
     .next = " " CHAT_EOS " [INST] ",
     .answer = " [/INST]",
     .empty = 2},
    {.name = "mistral-7b-instruct-v0.3-v2",
     .alone = CHAT_BOS "[INST] ",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST] ",
     .answer = "[/INST]",
     .empty = 2},
    {.name = "mistral-large-instruct-2411",
     .alone = CHAT_BOS "[INST] ",
     .system = CHAT_BOS "[SYSTEM_PROMPT] ",
     .then = "[/SYSTEM_PROMPT][INST] ",
     .reply = "[/INST] ",
     .next = CHAT_EOS "[INST] ",
     .answer = "[/INST]"},
    {.name = "mistral-small-3.2-24b-instruct-2506",
     .alone = CHAT_BOS
     "[SYSTEM_PROMPT]You are Mistral Small 3, a Large Language Model (LLM) created by Mistral AI, a French startup "
     "headquartered in Paris.\nYour knowledge base was last updated on 2023-10-01. The current date is " CHAT_DATE
     ".\n\nWhen you're not sure about some information or when the user's request requires up-to-date or specific "
     "data, you must use the available tools to fetch the information. Do not hesitate to use tools whenever they can "
     "provide a more accurate or complete response. If no relevant tools are available, then clearly state that you "
     "don't have the information and avoid making up anything.\n\nIf the user's question is not clear, ambiguous, or "
     "does not provide enough context for you to accurately answer the question, you do not try to answer it right "
     "away and you rather ask the user to clarify their request (e.g. \"What are some good restaurants around me?\" => "
     "\"Where are you?\" or \"When is the next flight to Tokyo\" => \"Where do you travel from?\").\nYou are always "
     "very attentive to dates, and when asked about information at specific dates, you discard information that is at "
     "another date.\nYou follow these instructions in all languages, and always respond to the user in the language "
     "they use or request.\nNext sections describe the capabilities that you have.\n\n# WEB BROWSING "
     "INSTRUCTIONS\n\nYou cannot perform any web search or access internet to open URLs, links etc. If it seems like "
     "the user is expecting you to do so, you clarify the situation and ask the user to copy paste the text directly "
     "in the chat.\n\n# MULTI-MODAL INSTRUCTIONS\n\nYou have the ability to read images, but you cannot generate "
     "images. You also cannot transcribe audio files or videos.\nYou cannot read nor transcribe audio files or "
     "videos.\n\n# TOOL CALLING INSTRUCTIONS\n\nYou may have access to tools that you can use to fetch information or "
     "perform actions. You must use these tools in the following situations:\n\n1. When the request requires "
     "up-to-date information.\n2. When the request requires specific data that you do not have in your knowledge "
     "base.\n3. When the request involves actions that you cannot perform without tools.\n\nAlways prioritize using "
     "tools to provide the most accurate and helpful response. If tools are not available, inform the user that you "
     "cannot perform the requested action at the moment.[/SYSTEM_PROMPT][INST]",
     .system = CHAT_BOS "[SYSTEM_PROMPT]",
     .then = "[/SYSTEM_PROMPT][INST]",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST]",
     .answer = "[/INST]",
     .form = "%Y-%m-%d"},
    {.name = "orca-vicuna",
     .alone = "USER: ",
     .system = "SYSTEM: ",
     .then = "\nUSER: ",
     .reply = "\nASSISTANT: ",
     .next = "</s>\nUSER: ",
     .answer = "\nASSISTANT:"},
    {.name = "phi-3",
     .alone = "<|user|>\n",
     .system = "<|system|>\n",
     .then = "<|end|>\n<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n"},
    {.name = "phi-3-medium-4k-instruct",
     .alone = "<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n",
     .empty = 2},
    {.name = "phi-4-mini-instruct",
     .alone = "<|user|>",
     .system = "<|system|>",
     .then = "<|end|><|user|>",
     .reply = "<|end|><|assistant|>",
     .next = "<|end|><|user|>",
     .answer = "<|end|><|assistant|>"},
    {.name = "qwq-32b",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n<think>\n</think>",
     .cut = 5},
    {.name = "qwen1.5-0.5b-chat",
     .alone = "<|im_start|>system\nYou are a helpful assistant<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "solar-10.7b-instruct-v1.0",
     .alone = "### User:\n",
     .system = "### System:\n",
     .then = "\n\n### User:\n",
     .reply = "\n\n### Assistant:\n",
     .next = "### User:\n",
     .answer = "\n\n### Assistant:\n",
     .empty = 1},
    {.name = "smaug-34b-v0.1",
     .alone = "",
     .system = "[INST] <<SYS>>\n",
     .then = "\n<</SYS>>\n\n",
     .reply = " [/INST] ",
     .next = " " CHAT_EOS CHAT_BOS "[INST] ",
     .answer = " [/INST]",
     .plain = 1},
    {.name = "smollm3-3b-unsloth",
     .alone = "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nReasoning Mode: /think\n\n## "
              "Custom Instructions\n\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role "
              "as an assistant involves thoroughly exploring questions through a systematic thinking process before "
              "providing the final precise and accurate solutions. This requires engaging in a comprehensive cycle of "
              "analysis, summarizing, exploration, reassessment, reflection, backtracking, and iteration to develop "
              "well-considered thinking process. Please structure your response into two main sections: Thought and "
              "Solution using the specified format: <think> Thought section </think> Solution section. In the Thought "
              "section, detail your reasoning process in steps. Each step should include detailed considerations such "
              "as analysing questions, summarizing relevant findings, brainstorming new ideas, verifying the accuracy "
              "of the current steps, refining any errors, and revisiting previous steps. In the Solution section, "
              "based on various attempts, explorations, and reflections from the Thought section, systematically "
              "present the final solution that you deem correct. The Solution section should be logical, accurate, and "
              "concise and detail necessary steps needed to reach the conclusion.\n\n<|im_end|>\n<|im_start|>user\n",
     .system = "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nReasoning Mode: /think\n\n## "
               "Custom Instructions\n\n",
     .then = "\n\n<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n",
     .trim = {2, 0, 0},
     .empty = 2,
     .cut = 4,
     .where = 1,
     .words = {"/think", "/no_think"}},
    {.name = "synatra-mixtral-8x7b",
     .alone = "Below is an instruction that describes a task. Write a response that appropriately completes the "
              "request.\n\n### Instruction:\n",
     .system = "Below is an instruction that describes a task. Write a response that appropriately completes the "
               "request.\n\n",
     .then = "### Instruction:\n",
     .reply = "### Response:\n",
     .next = "### Instruction:\n",
     .answer = "### Response:\n",
     .trim = {3, 3, 3}},
    {.name = "tulu-3",
     .alone = "<|user|>\n",
     .system = "<|system|>\n",
     .then = "\n<|user|>\n",
     .reply = "\n<|assistant|>\n",
     .next = CHAT_EOS "\n<|user|>\n",
     .answer = "\n<|assistant|>\n",
     .plain = 1},
    {.name = "yandexgpt-5-lite-8b-instruct",
     .alone = "<s> Пользователь: ",
     .reply = "\n\n Ассистент: ",
     .next = "\n\n Пользователь: ",
     .answer = "\n\n Ассистент:[SEP]",
     .plain = 1,
     .empty = 2},
    {.name = "yi-1.5-9b-chat",
     .alone = "<|im_start|>user\n",
     .system = "",
     .then = "<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n"},
    {.name = "axolotl-alpaca",
     .alone = "\n" CHAT_BOS "\n\n        ### Instruction:\n",
     .system = "\n" CHAT_BOS,
     .then = "\n\n\n\n        ### Instruction:\n",
     .reply = "\n\n\n\n        ### Response:\n",
     .next = CHAT_EOS "\n\n\n\n        ### Instruction:\n",
     .answer = "\n\n\n\n    ### Response:\n\n",
     .trim = {3, 3, 3}},
    {.name = "axolotl-chatml",
     .alone = "\n" CHAT_BOS "\n\n    <|im_start|>user\n",
     .system = "\n" CHAT_BOS "\n\n    <|im_start|>system\n",
     .then = "<|im_end|>\n\n\n    <|im_start|>user\n",
     .reply = "<|im_end|>\n\n\n    <|im_start|>assistant\n",
     .next = "<|im_end|>\n\n\n    <|im_start|>user\n",
     .answer = "<|im_end|>\n\n\n    <|im_start|>assistant\n\n",
     .trim = {3, 3, 3}},
    {.name = "axolotl-metharme",
     .alone = CHAT_BOS "<|system|>Enter RP mode. You shall reply to the user while staying in character. Your "
                       "responses must be detailed, creative, immersive, and drive the scenario forward.<|user|>",
     .system = CHAT_BOS "<|system|>",
     .then = "<|user|>",
     .reply = "<|model|>",
     .next = "<|user|>",
     .answer = "<|model|>",
     .trim = {0, 3, 3},
     .plain = 1},
    {.name = "axolotl-mistral-v7-tekken",
     .alone = CHAT_BOS
     "[SYSTEM_PROMPT]You are Mistral Small 3, a Large Language Model (LLM) created by Mistral AI, a French startup "
     "headquartered in Paris.\nYour knowledge base was last updated on 2023-10-01. The current date is " CHAT_DATE
     ".\n\nWhen you're not sure about some information, you say that you don't have the information and don't make up "
     "anything.\nIf the user's question is not clear, ambiguous, or does not provide enough context for you to "
     "accurately answer the question, you do not try to answer it right away and you rather ask the user to clarify "
     "their request (e.g. \"What are some good restaurants around me?\" => \"Where are you?\" or \"When is the next "
     "flight to Tokyo\" => \"Where do you travel from?\")[/SYSTEM_PROMPT][INST]",
     .system = CHAT_BOS "[SYSTEM_PROMPT]",
     .then = "[/SYSTEM_PROMPT][INST]",
     .reply = "[/INST]",
     .next = CHAT_EOS "[INST]",
     .answer = "[/INST]",
     .form = "%Y-%m-%d"},
    {.name = "axolotl-phi-3",
     .alone = CHAT_BOS "<|user|>\n",
     .system = CHAT_BOS "<|system|>\n",
     .then = "<|end|>\n<|user|>\n",
     .reply = "<|end|>\n<|assistant|>\n",
     .next = "<|end|>\n<|user|>\n",
     .answer = "<|end|>\n<|assistant|>\n"},
    {.name = "axolotl-phi-4",
     .alone = "<|im_start|>system<|im_sep|>You are Phi, a language model trained by Microsoft to help users. Your role "
              "as an assistant involves thoroughly exploring questions through a systematic thinking process before "
              "providing the final precise and accurate solutions. This requires engaging in a comprehensive cycle of "
              "analysis, summarizing, exploration, reassessment, reflection, backtracing, and iteration to develop "
              "well-considered thinking process. Please structure your response into two main sections: Thought and "
              "Solution using the specified format: <think> {Thought section} </think> {Solution section}. In the "
              "Thought section, detail your reasoning process in steps. Each step should include detailed "
              "considerations such as analysing questions, summarizing relevant findings, brainstorming new ideas, "
              "verifying the accuracy of the current steps, refining any errors, and revisiting previous steps. In the "
              "Solution section, based on various attempts, explorations, and reflections from the Thought section, "
              "systematically present the final solution that you deem correct. The Solution section should be "
              "logical, accurate, and concise and detail necessary steps needed to reach the conclusion. Now, try to "
              "solve the following question through the above guidelines:<|im_end|><|im_start|>user<|im_sep|>",
     .system = "<|im_start|>system<|im_sep|>",
     .then = "<|im_end|><|im_start|>user<|im_sep|>",
     .reply = "<|im_end|><|im_start|>assistant<|im_sep|>",
     .next = "<|im_end|><|im_start|>user<|im_sep|>",
     .answer = "<|im_end|><|im_start|>assistant<|im_sep|>"},
    {.name = "axolotl-qwen3",
     .alone = "<|im_start|>user\n",
     .system = "<|im_start|>system\n",
     .then = "<|im_end|>\n<|im_start|>user\n",
     .reply = "<|im_end|>\n<|im_start|>assistant\n",
     .next = "<|im_end|>\n<|im_start|>user\n",
     .answer = "<|im_end|>\n<|im_start|>assistant\n<think>\n",
     .trim = {3, 3, 3},
     .blank = 6,
     .cut = 1,
     .where = 6,
     .words = {"<tool_response>", "</think>"}},
    {.name = "deepseek-coder-33b-instruct-awq",
     .alone =
         "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek Company, and "
         "you only answer questions related to computer science. For politically sensitive questions, security and "
         "privacy issues, and other non-computer science questions, you will refuse to answer.\n### Instruction:\n",
     .system =
         "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek Company, and "
         "you only answer questions related to computer science. For politically sensitive questions, security and "
         "privacy issues, and other non-computer science questions, you will refuse to answer.\n",
     .then = "### Instruction:\n",
     .reply = "\n### Response:\n",
     .next = "\n<|EOT|>\n### Instruction:\n",
     .answer = "\n### Response:\n"},
    {.name = "deepseek-coder-33b-instruct",
     .alone = CHAT_BOS
     "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek Company, and you "
     "only answer questions related to computer science. For politically sensitive questions, security and privacy "
     "issues, and other non-computer science questions, you will refuse to answer\n### Instruction:\n",
     .system = CHAT_BOS,
     .then = "### Instruction:\n",
     .reply = "\n### Response:\n",
     .next = "\n<|EOT|>\n### Instruction:\n",
     .answer = "\n### Response:\n"},
    {.name = "deepseek-llm-7b-chat",
     .alone = CHAT_BOS "User: ",
     .system = CHAT_BOS,
     .then = "\n\nUser: ",
     .reply = "\n\nAssistant: ",
     .next = CHAT_EOS "User: ",
     .answer = "\n\nAssistant:"},
    {.name = "functionary-medium-v3.1",
     .alone = CHAT_BOS "<|start_header_id|>system<|end_header_id|>\n\n\nCutting Knowledge Date: December "
                       "2023\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .system = CHAT_BOS "<|start_header_id|>system<|end_header_id|>\n\n\nCutting Knowledge Date: December "
                        "2023\n\n<|eot_id|><|start_header_id|>system<|end_header_id|>\n\n",
     .then = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .reply = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .next = "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
     .answer = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {.name = "granite-3.0-8b-instruct",
     .alone = "<|start_of_role|>user<|end_of_role|>",
     .system = "<|start_of_role|>system<|end_of_role|>",
     .then = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .reply = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .next = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .answer = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>"},
    {.name = "granite-3.3",
     .alone = "<|start_of_role|>system<|end_of_role|>Knowledge Cutoff Date: April 2024.\nToday's Date: " CHAT_DATE
              ".\nYou are Granite, developed by IBM. You are a helpful AI "
              "assistant.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .system = "<|start_of_role|>system<|end_of_role|>",
     .then = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .reply = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .next = "<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>",
     .answer = "<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
     .form = "%B %d, %Y"},
    {.name = "h2o-danube-1.8b-chat",
     .alone = "<|prompt|>",
     .system = "<|system|>",
     .then = CHAT_EOS "<|prompt|>",
     .reply = CHAT_EOS "<|answer|>",
     .next = CHAT_EOS "<|prompt|>",
     .answer = CHAT_EOS "<|answer|>",
     .plain = 1},
    {.name = "openchat-3.5-0106",
     .alone = CHAT_BOS "GPT4 Correct User: ",
     .system = CHAT_BOS "GPT4 Correct System: ",
     .then = "<|end_of_turn|>GPT4 Correct User: ",
     .reply = "<|end_of_turn|>GPT4 Correct Assistant: ",
     .next = "<|end_of_turn|>GPT4 Correct User: ",
     .answer = "<|end_of_turn|>GPT4 Correct Assistant:"},
    {.name = "vicuna-13b-1.1",
     .alone = "USER: ",
     .system = "",
     .then = "\n\nUSER: ",
     .reply = "\nASSISTANT: ",
     .next = "</s>\nUSER: ",
     .answer = "\nASSISTANT:"},
};
enum { CHAT_NAMED = 24 };  // the first ones are many models', and have names of their own

// clang-format off
static const struct {
    char sha256[65];
    int format;
} chat_template_list[] = {
    {"4f46ecd43418f216df8c26936c60e5d04bcc81db47db5d86fbe889f64212dd4c", 0},  // Llama-3, Llama-3-Instruct
    {"68da1281c0c8bd7dd19f04fc1e8435b63858cb511819beafc270b70c8821a9bf", 0},  // axolotl-llama3
    {"b48c47f6443892716176eb200bf4ef108f64e06ca26ed0fa8ebc0a4b3992fcb2", 0},  // Meta-Llama-3-8B-Instruct
    {"b75e17085cfc511ead6d4fab84b86ab3c168ec7a332568a91d0889cdcba94394", 0},  // Meta-Llama-3-8B-Instruct
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", 0},  // Llama-3, Llama-3-Instruct
    {"438899ef3f928a5c57141868a82d1d90b60ceab0297e07a4d46bad17510b7e94", 1},  // Llama-3.1, Llama-3.1-8B-Instruct, L...
    {"4ef3754475af40fe03737516d9bc6df37dfe43a015c2d464b70aa49c3a493a13", 2},  // Llama-3.2, Llama-3.2-3B-Instruct
    {"5dc3ab76a98f3889ad7f7af42d81259e2600c751b3fab807c1d08e9768e9d0a1", 3},  // default-llama
    {"9780fae5bfea3cfd7be37d328c6edfd296a8869be8131495bbe7eb37e780c88c", 3},  // Llama-2-13b-chat
    {"be7f8f15473ed3f98fd513d422daef97d1b101e6d3aeac3904e3a15f7807c07b", 3},  // default-llama
    {"e8d5b5a546d3f19df16a5320c614fab05bdc4edd50e850f1afd947b503ea41cf", 3},  // Llama-2-13b-chat
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", 4},  // OpenHermes-2.5-Mistral-7B, OpenHerm...
    {"1eca4a136b0ee4b7ce51bf09c5366f71d4345b9358f4dc1a6fc161912975b450", 4},  // chatml
    {"276f7dbcb55f8da240e82837400a89eda3f64a9aef0e3bddbfd1e9fa5e0d47f9", 4},  // Qwen3-Instruct-2507
    {"58c1a1f04baa7adaeaba1f90267c3d57d9396f0c1f0129bdde9e76d3c6784af7", 4},  // Yi-34B-Chat, dolphin-2.5-mixtral-8x...
    {"63e08ab440bd83602f2e3e73951ca5ed5aec24fe37328c10be575c9d0fb688fe", 4},  // Qwen2.5
    {"cf53f123ac66cf98e0879552d7cddc4b6510a760945989a40935ecfc72a9fcf0", 4},  // Qwen3-Coder
    {"d7b5b8c7b58f7a6bf868aa46a5f73ee976d7292f40fcb9c3e7a1defd8d235cfb", 4},  // Yi-34B-Chat, dolphin-2.5-mixtral-8x...
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e", 4},  // OpenHermes-2.5-Mistral-7B, OpenHerm...
    {"68268d4bc1d650084b6b70d429c28c731b651126ee7bec82cd124cc782af9d0d", 5},  // Hermes-3-Llama-3.1-8B
    {"a805e50fed68938a076b07e2e602639611b50b1ced0e50f11eb92f1ba25be4dc", 5},  // Hermes-3-Llama-3.1-8B
    {"54b4ee44cc42cce575e9967a1ddb7768071887c160dcdc028f925323d07ecb79", 6},  // Hammer2.1
    {"793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb", 6},  // Qwen2-7B-Instruct
    {"f0206845c9ebc3abb4735d44f286eb81ce99238ad2accc710c6fc60e6cb8ccc8", 6},  // Qwen2-7B-Instruct
    {"9dbb99446bcc262214e972e26a227eab3c152f9fdafaa208cde5f6c8d77763d1", 7},  // Qwen2.5, Qwen2.5-7B-Instruct
    {"214a8c78aa1e348e7c219baee93936fc68c2cab349cc5b5f964544f5cb8edf7e", 8},  // Qwen3-Instruct-2507
    {"3f5820149d276e49aeebc669a418ca4b3b76f3e22b4c2270d3c834c2474336e2", 8},  // Qwen3
    {"593ab84140f76eae8ad875e18a5fbaeb23790135481fbebd5d569737122975d2", 8},  // Qwen3, Qwen3-0.6B
    {"8c31b32b1c535b9e7f87d69eaf1c8b1ac4ad86a308cd349cfc2ae33d25d57901", 8},  // Qwen3
    {"1802f9730cf71434fa7c136293a9f533cbb41ab662cb2cb70ca3a81a06991019", 9},  // Qwen3-Thinking-2507
    {"7e995b379ec01747807246483647cd99030abf331653f1119e16d7ac041a3495", 10},  // Mistral-7B-Instruct-v0.1, Mistral-...
    {"26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7", 11},  // Mixtral, Mixtral-8x7B-Instruct-v0.1
    {"465ce835966547178a53358e703d8de2bb7f92221987c7d3e83edda8274ce66f", 12},  // axolotl-mistral-v2v3
    {"ef81414769b665dc754ee971173c3c09cb0d4dd210fbd03d00566af48e359cc5", 12},  // Mistral-Large-Instruct-2407
    {"10d029642390cb14833a3ff9f658ffef0bbb4a2f837c9e7ac4a54d8bf8b00e3f", 13},  // Mistral-Nemo-Instruct-2407
    {"5dc388929b9f61aa7a797710ff551724a69b2d2d390c190f4c4ef8fa5c840c75", 13},  // Mistral-Nemo
    {"671a876bf4195dfff563b367c8d506f8fcfc78a3698aa02dbe7f8b691ccc6863", 13},  // axolotl-mistral-v3-tekken
    {"77580210d3775559b0ac670cfca0a5a7239e383a1b7100297bf5dc1ce2ecdd2a", 13},  // Mistral-Nemo
    {"4f39e3a4b9e3d369b42fd00d93a78f171914bb4e58ec84fc420433d7a153288a", 14},  // TinyLlama-1.1B-Chat-v1.0, zephyr-7...
    {"66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362", 14},  // TinyLlama-1.1B-Chat-v1.0, zephyr-7...
    {"268b6082ceb7176dc6ed80557a2f7837f9f0339592fbee677d405a553af15f88", 15},  // Phi-3-mini-4k-instruct
    {"4552eefd92474b5259a00e369ebb5989535118101ca9ddeff68c11e879bbb9dd", 15},  // Phi-3-mini-4k-instruct
    {"107f446a0c69ad81516797efae2998f51b1c8e3ea6e74253dcaff6629306bfc7", 16},  // Phi-3.5, Phi-3.5-mini-instruct
    {"78d976a442bcde2f0be15aafbb8e3050e1104f86732266f68403251b89982a90", 16},  // Phi-3.5, Phi-3.5-mini-instruct
    {"b9b84dd705f2bad1f9667af60a1745ab1a92e1f2e069b2eba5d65e69c5594872", 16},  // axolotl-phi-3.5
    {"e6644e725e6115b8494a03f2b9169acd04ee4845d839f126d2bb2b4b9c6b2bfc", 16},  // axolotl-phi-3.5
    {"a41fb8727c4f1e722e53cb1ea935038a1177b8bdf09387f3b048f9da5255ef3e", 17},  // phi-4
    {"1d70e28b0f5d110b3034d1132391f7e4ab92d879ea2560c22d1d6088c5240e49", 18},  // granite-3.3-2b-instruct
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", 19},  // SmolLM2-135M-Instruct
    {"de9cde7d1b0ca0cc87459a6673e0d12fb89c070bdb24e4a30b6e4d187b226221", 19},  // SmolLM2-135M-Instruct
    {"5d4c40a9c0d5adb8c5472afc1cc68cca1a7900641ccdb6f949dcf6ee1ca8e1aa", 20},  // SmolLM3
    {"791b7e9b0b5fb16d9fa7d6f93c93f9995f36e40a9c7883449056e393f245efb9", 20},  // SmolLM3
    {"903ca72b08d9b06b92ad5e96cd30d2296ca5e98d588034c48a128bf0010691f1", 21},  // Seed-OSS-36B-Instruct
    {"73bd955afa5c569a6ee624f72d938e6b6464a8d210f963f4661c26e7d29fd1ee", 22},  // DeepSeek-R1-Distill-Qwen-32B
    {"62cfe6e0a2315ca950c1e8170a36a2c6ca7594a9d95c5fb5b6d87492472ba2c8", 23},  // tiny42
    {"788c5dfe3250a19a379ed6b9e54d1ce9cbacfdf2a3117fdef7108c49a87649cd", 23},  // llm42-trimmed
    {"396b7b76d04a4cdfd45a5a8e73e041ae66b070cda30f24c607e9b872b4a13826", 24},  // AlphaMonarch-7B
    {"da877606ea461c2dec8ec532808d1f53d838456fd8a1f188480e5511fa1c3062", 24},  // AlphaMonarch-7B
    {"8355241b5eccc3304bc76b3a415a23eca7331c30d3bcc43b08675ad7693e8070", 25},  // Apriel-1.5
    {"4a887e4b4e85397a661b47cbb854d0251d4dc94f16f7c9fffc3c8c9e0e1a1238", 26},  // Bielik-11B-v3.0-Instruct
    {"5324fdb4454c54595647891b5d637bc4eb1b70fde46ef8c7001ab20f36c8c20e", 27},  // CodeLlama-70b-Instruct
    {"75678d463085865163b4c6dbc28f7178738d992b53124ad3612304f48a983b02", 27},  // CodeLlama-70b-Instruct
    {"1546232b56f9c33a5d7fcdc270b0014d67dff9c3df06737f091a4a7dee729c3a", 28},  // DeepSeek-R1-Distill-Qwen-32B
    {"3564be42d3171962fc65e6a1187f991cb23b4114c15159c524c701be44da3964", 28},  // DeepSeek-R1
    {"3a3036eeb96ca0e48565fc1f19b4d7d3fa17ada32bb1b3d5ed539ae74cf22923", 28},  // DeepSeek-R1
    {"b6835114b7303ddd78919a82e4d9f7d8c26ed0d7dfc36beeb12d524f6144eab1", 28},  // DeepSeek-R1-Distill-Qwen-32B
    {"d9338ea88641ef20d32011ccfca5686713fe2482158f2e697e1a6c36dc4dbc07", 29},  // DeepSeek-R1-Distill
    {"234badd0ac1858c475dc87ba5d7e7156aec9d85d24cb9ded4355716fb7cdfea7", 30},  // DeepSeek-R1-Distill-Llama-8B
    {"2827c78d72588748d4eaa5e948e0a8ed2bb9692d7c8727f92e9fb4f877d0536b", 30},  // DeepSeek-R1-Distill-Qwen-32B
    {"56a1447ad31926fdc21fb07e56e5642bd9c850c4f52d8c8af7bbe5f079a84f5f", 30},  // DeepSeek-R1-Distill, DeepSeek-R1-D...
    {"795ba6276beff6e84e75213f77a7e7fff71b6c587618a6ed43c1f90c2ad2334a", 30},  // DeepSeek-R1-Distill
    {"036e9f58bd85a212f767d20faf2826a0dd43e0c3f98ffe61369288334906323a", 31},  // Ministral-3-14B-Reasoning-2512
    {"267ce3da43ff4f38335380c921dc3edad34a7f3f3548ea515dd33f4e60b2d036", 32},  // axolotl-mistral-v1
    {"67220b1906aeabd9c820d7884fc2882bf93e4c6577bef1fe3c9530b4d2589349", 32},  // Mistral-7B-Instruct-v0.2
    {"897d3332870af0c883a8173f5c52446dd289fd10ee6d1e9b270a783afbc8cbda", 33},  // Mistral-7B-Instruct-v0.3
    {"736dba5c1d552a0ddde5164a64792bd2a3639af3b78dff7917c2dd5d4d48e43a", 34},  // Mistral-7B-Instruct-v0.3
    {"3c4ad5fa60dd8c7ccdf82fa4225864c903e107728fcaf859fa6052cb80c92ee9", 35},  // Mistral-Large-Instruct-2411
    {"9796b07281b7413c2b5a78125346de5f25d576ddeca63ecad6d3f6ca2f6db259", 36},  // Mistral-Small-3.2-24B-Instruct-2506
    {"2cf494886f582fc88eb0c1f587c1a43baff83103e9d77f37542d3b8c7586f803", 37},  // Orca-Vicuna
    {"5601fd7b9dac735cd1a9d029f73cbcf63a48f84b640df193dadc6ac6af980391", 38},  // Phi-3
    {"dcaee66df77bfbb789ec541fe713218da30225a526f1db97138fc39ee6dc56aa", 38},  // Phi-3
    {"605841622bcb6572225608f09ec2afcdfb9fb50844ef52715a12689f7b9278b1", 39},  // Phi-3-medium-4k-instruct
    {"6b2fedcaff5489ce48d01fbbd17c7a46d4bf78001a5d05ec91d6067bf102e56f", 39},  // Phi-3-medium-4k-instruct
    {"febf589225c9728ab791f52e8897d7607a823d45368f0a4c92fa68997b40cce9", 40},  // Phi-4-mini-instruct
    {"c11e7990dc13f19c45861e2eb4c0bc7cb942fa73705c3c26ea9838029a3476f8", 41},  // QwQ-32B
    {"7a2fad4301dcce93b13747dfd6ee5fa696dc12de86b85b86344bea8f649022b3", 42},  // Qwen1.5-72B-Chat
    {"7c0cc400db493cfc546224cbd626ef46495c4b19103042eb5518f06bf7f1e26d", 42},  // Qwen1.5-0.5B-Chat
    {"9161685725c9f49b4f36d8f446bcdb801a68ba70f91764dffccafcddcb69cfe9", 42},  // Qwen1.5-72B-Chat
    {"af9c0233881b083b52ff773580215222b5440ac3d0beeeca99b76329b048f8db", 42},  // Qwen1.5-0.5B-Chat
    {"aef0d8fdd367267b22ec7fa9d8b5ebe1b89f1c6cb98d571f5e75ac7e07948937", 43},  // SOLAR-10.7B-Instruct-v1.0
    {"b8e5e922a7a4ab5df61a904ef54639a27022fd84eb6b6434f09503afeca60eb4", 43},  // SOLAR-10.7B-Instruct-v1.0
    {"7942d21aecd1e8c4c19f5c8e85cca4526ab690bb242463c42f3dfb774dee05af", 44},  // Smaug-34B-v0.1
    {"4e88e676874dc11bd3f17e9e4b7c0644799c98c72dff8cb7d1519bab37ec6abf", 45},  // SmolLM3-3B-unsloth
    {"e7a0ab198804eb445f35a2ac5e23e7d58390ab75f32b197a64aefa6a16f29305", 46},  // Synatra-Mixtral-8x7B
    {"ac7498a36a719da630e99d48e6ebc4409de85a77556c2b6159eeb735bcbd11df", 47},  // Tulu-3
    {"d8bf178393df62d7be294ce102976a4b415a9312270007fcd9abd8776048afe2", 47},  // Tulu-3
    {"53c715ddc031be7f7c9b86a6698a47e0e0ed998e5c5de0dff7e36e8454d00b2e", 48},  // YandexGPT-5-Lite-8B-instruct
    {"91aa728ae59c8e30443382f44f48d594b5f7afe91a449c0e5ed0e920a71d60a2", 49},  // Yi-1.5-9B-Chat
    {"d46a86f116c926da86c9232a071e325115772dcf7a55e6881c09c6b43e864dc7", 49},  // Yi-1.5-9B-Chat
    {"c809acafb5915672fe8db9b3970cd691a63c24f971e39b6ce03e8fec42ea6ff4", 50},  // axolotl-alpaca
    {"81a800d52014500ed43923f335cdf7a40c6cb2f54ce368ba39eeba97e6d908cc", 51},  // axolotl-chatml
    {"d51b5191cbaec7aa1f13c482ed7262673a6b0b0f14b5a1def24f466ed737f1ee", 52},  // axolotl-metharme
    {"74dce42d392fbc2bd7e6f4b0ddca2d3f39ad9d30cbf14347f7d7e6f4ffeb4d13", 53},  // axolotl-mistral-v7-tekken
    {"68e5b97472ceec7523b68d3678958db46f568999a43221ae354a6ba0bcf0a611", 54},  // axolotl-phi-3
    {"7a5d9e5b666f17e77da0d1dccfe5287d2ff7b71ebbaa42171d02d6f7587e43ac", 55},  // axolotl-phi-4
    {"e16a201f7c9c45e486e8216fab2e234734e2b319f16ce546c3f00f1b13f1caeb", 56},  // axolotl-qwen3
    {"daf1217910e687d7b151c16b120cf0dba7d5f1bcffe2a64ef2ce2008443aa25d", 57},  // deepseek-coder-33B-instruct-AWQ
    {"263951df2f27f7523532466d6bafb6dd302f58b776c15a223563909bbaf5ae4c", 58},  // deepseek-coder-33b-instruct
    {"5b0c475e85b3954175a606f8e7540ec0c6a16edb516e2b8cd0c000dff7b1ad65", 59},  // deepseek-llm-7b-chat
    {"8aeba567270fa9a8d5372caf4b04affea947c4421d96adc01e3ff94021b0ae8e", 59},  // deepseek-llm-7b-chat
    {"479e5ca24fdbf8271befda457513594b6c7226249358c64a04a49cce8debc2fd", 60},  // functionary-medium-v3.1
    {"b6d90a34b47b44d7d472e15d48593be9ffda4c0625a4913d0fad95bddd75043f", 61},  // granite-3.0-8b-instruct
    {"401260c3596539d2cb438c4b552b97179997dceaf5151a7d7a798098102c6f15", 62},  // granite-3.3
    {"030682a71799f58861b11abced478506e9d2b84bb0edd2cc3a3b669c32fb9132", 63},  // h2o-danube-1.8b-chat
    {"901b10d47195fadb5692137ecd4b2733730be9d32fde6c6eae23e5153712525e", 64},  // openchat-3.5-0106
    {"f298c5c34dedb637a2a665ac409ad764cf3ffb5b2fd89d0e2fa0118a3dc21f1f", 65},  // vicuna-13b-1.1
};
// clang-format on

#endif  // CHAT_TEMPLATES_H
