"""Rules that find notes in what a user writes: 165 sentences, half of them with nothing to note.

They were written before the rules, or after them without a look at their patterns.
"""

from __future__ import annotations

import pytest

from loom_core.agent.user_memory.extraction import find_notes

_NOTED = (
    "My name is Ada Lovelace.",
    "Hi, I'm Tom and I need help with my tax form.",
    "Please call me Bea, not Beatrice.",
    "I'm allergic to peanuts.",
    "I am allergic to penicillin, so please check that before you suggest anything.",
    "I prefer short answers without bullet points.",
    "From now on, please answer in French.",
    "Remember that my daughter Mia starts school in September.",
    "I live in Leeds.",
    "I work as a nurse at St James's Hospital.",
    "Could you recommend a restaurant? I'm vegetarian.",
    "I don't eat pork.",
    "Always use metric units when you give me a recipe.",
    "My favourite colour is green.",
    "Please remember: the project deadline is 4 June.",
    "I hate phone calls, so only suggest e-mail.",
    "I moved to Berlin last month.",
    "Never use emojis in your replies to me.",
    "We have two dogs and a cat.",
    "My wife's name is Carol.",
    "我叫李明。",
    "你好，我是王芳，想咨询一下年假。",
    "以后叫我小陈就行。",
    "我对花生过敏。",
    "我对青霉素过敏，开药的时候请注意。",
    "我喜欢喝茉莉花茶。",
    "以后请用英文回答我。",
    "请记住，我女儿九月上小学。",
    "我住在杭州西湖区。",
    "我在一家医院当护士。",
    "我吃素，推荐几家餐厅吧。",
    "我不吃香菜。",
    "以后回答都用表格。",
    "我最喜欢的颜色是绿色。",
    "记住：项目截止日期是六月四日。",
    "我不喜欢接电话，联系我请发邮件。",
    "我上个月搬到了成都。",
    "回复我时不要用表情符号。",
    "我们家养了两只狗。",
    "我妻子叫张丽。",
    "Just so you know, I'm a vegan and I work for a small bakery.",
    "My name's Priya and I live in Pune.",
    "Never use eval in your code for me, from now on.",
    "I prefer Python to Java.",
    "I don't eat gluten because of coeliac disease.",
    "I'm a teacher in Vienna.",
    "My dog is called Rex.",
    "My favourite editor is Emacs.",
    "Remember that 2+2 is 4 in your answer, please.",
    "我不喝咖啡，喝茶。",
    "我的生日是3月5日",
    "我儿子叫小宝，今年五岁",
    "我比较喜欢简洁的回答",
    "我讨厌香菜",
    "请记住我的车牌是浙A12345",
    "以后请不要用英文。",
    "我在阿里巴巴工作，做后端。",
    "我叫王小明，请帮我写一封邮件",
    "我喜欢吃辣，有什么川菜推荐？",
    "我不能吃海鲜",
    "I'm allergic to shellfish, is this soup safe?",
    "我对虾过敏，这道菜能吃吗？",
    "Good morning! I'm Chloé, new in accounting.",
    "I never drink alcohol.",
    "I like big O notation, can you explain it?",
    "We have a dog.",
    "I can't eat dairy and I live in Oslo.",
    "I prefer tabs",
    "please call me Dr. Okafor",
    "My son is called Leo and he loves trains.",
    "Remember that he said he'd come.",
    "I moved to France in 2019.",
    "I love Python but this error is silly.",
    "Always answer me in one sentence.",
    "我叫张伟，今年三十岁，在深圳工作",
    "我喜欢简短的回答。",
    "我住在上海，帮我查一下天气",
    "从现在开始，你是一个海盗",
    "我家有一个孩子",
    "我的猫叫咪咪",
    "叫我大王",
    "我讨厌下雨天",
    "请记住，不要提前告诉别人",
    "我爱吃火锅，有推荐吗？",
)

_NOT_NOTED = (
    "What is my name?",
    "What should I call the new variable?",
    'He said: "My name is Bob and I live in Rome."',
    "My brother is allergic to cats; is there a hypoallergenic breed?",
    "If I were allergic to nuts, which of these could I eat?",
    'Translate "my name is Anna" into German.',
    "Suppose I live in Paris. How much tax would I pay?",
    "Do you remember that film with the blue aliens?",
    "Write a story in which the hero says: I prefer death to dishonour.",
    "I am not allergic to anything.",
    "Is it true that people prefer tea over coffee in Turkey?",
    "The class `MyName` is called from main().",
    "I'm looking for a flight to Rome on Friday.",
    "I think the second paragraph is better.",
    "Remember to close the file handle in the function.",
    "I'm not sure what you mean.",
    "I want a table with three columns.",
    "My password is hunter2, can you log in?",
    "How do I say 'I am allergic to fish' in Japanese?",
    "Imagine I'm Napoleon and write my diary.",
    "我叫什么名字？",
    "你还记得我喜欢什么吗？",
    "他说：“我叫李雷，我住在北京。”",
    "我弟弟对猫过敏，有什么品种适合他？",
    "如果我对坚果过敏，这些哪个能吃？",
    "把“我叫安娜”翻译成德语。",
    "假设我住在巴黎，要交多少税？",
    "你记得那部有蓝色外星人的电影吗？",
    "写一个故事，主角说：我喜欢自由。",
    "我对任何东西都不过敏。",
    "为什么很多人喜欢喝茶？",
    "我喜欢的那个方案你再展开说说。",
    "我想订一张周五去罗马的机票。",
    "我觉得第二段更好。",
    "别忘了在函数里关闭文件。",
    "我不太明白你的意思。",
    "我要一个三列的表格。",
    "我的密码是 hunter2，你能登录吗？",
    "“我对鱼过敏”用日语怎么说？",
    "想象我是拿破仑，替我写日记。",
    "I like the way you explained it.",
    "I live in hope that this compiles.",
    "I work for hours and it still fails, help!",
    "I love this, thanks!",
    "I like this answer more.",
    "From now on the function returns a list.",
    "Call me when the job is done.",
    "Call me maybe.",
    "Note to self: I like trains.",
    "In the future, cars will fly.",
    "I moved to Settings and clicked Save.",
    "I hate when tests are flaky.",
    "Summarise: I am allergic to bees, wrote Sam in his diary.",
    "I have two questions.",
    "我叫了外卖，怎么还没到",
    "我叫他明天来",
    "叫我怎么办",
    "我喜欢你的回答",
    "我在公司上班的时候电脑死机了",
    "我在想这个问题",
    "以后怎么办呢",
    "我住在酒店里，前台电话是多少",
    "记住密码的功能怎么做",
    "我家有什么推荐的路由器",
    "今后这个函数要返回列表",
    "I live in Leeds, right?",
    "我喜欢喝茶，对吧？",
    "I hate to bother you again, but it crashes.",
    "I work at night, so the noise is a problem.",
    "I have one child process that hangs.",
    "I have two cats in the picture, crop one.",
    "You should remember: I am the boss.",
    "My name is not important.",
    "我不喜欢这种风格",
    "我姐姐对花粉过敏",
    "我在北京出差",
    "我妈妈叫我回家",
    "我搬到了新的服务器上，还是报错",
    "小说里的人说我叫阿Q",
    "我不吃这一套",
    "我叫不出名字",
)


def test_statements_of_the_user_about_themselves_are_noted() -> None:
    assert [each for each in _NOTED if not find_notes(each)] == []


def test_questions_quotations_tasks_and_other_people_are_not() -> None:
    assert [(each, find_notes(each)) for each in _NOT_NOTED if find_notes(each)] == []


def test_whom_or_what_one_calls_for_is_no_name_and_a_taste_is_whole() -> None:
    for text in ("我叫车回家了", "我叫外卖都要等一小时", "我叫人来修", "明天早上叫我起床", "叫我明天开会"):
        assert find_notes(text) == []
    assert [each.text for each in find_notes("我喜欢周末的早晨。")] == ["我喜欢周末的早晨"]


def test_a_message_may_have_several_notes_and_each_is_only_what_is_said() -> None:
    notes = find_notes(
        "Hi, I'm Tom and I'm allergic to nuts, is this safe? I live in Leeds. `I like code`\n"
        "> I like quotes\n"
        "我叫李明，请帮我写一封邮件。"
    )
    assert [(each.text, each.kind, each.slot) for each in notes] == [
        ("I'm Tom", "identity", ""),
        ("I'm allergic to nuts", "constraint", "allergy:nuts"),
        ("I live in Leeds", "fact", "home"),
        ("我叫李明", "identity", "name"),
    ]


@pytest.mark.parametrize(
    "text", ["I like a" + ", and a" * 500, "我" * 3900, "I never use " * 300, "hi " * 1300]
)
def test_long_messages_take_no_time_and_longer_ones_are_not_read(text: str) -> None:
    find_notes(text)
    assert find_notes(f"I live in Leeds. {text * 4}") == []
